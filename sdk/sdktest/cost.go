package sdktest

import (
	"fmt"
	"math/bits"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// cost is what a program takes, in total.
type cost struct {
	operations int64 // results of elementwise operations, elements folded by reductions
	products   int64 // multiplications in products, rotations and factorizations
	passes     int   // times the tensor has to be read, one after the other
}

// count adds up a program, simplified as hosts do. A pass ends where a result depends
// on more than the corresponding elements: at a reduction, a product, a rotation, a
// transposition. Elementwise operations in between are taken as fused into one pass.
func count(p *program.Program) cost {
	if s, err := simplify.Program(p); err == nil {
		p = s
	}
	var c cost
	passes := make([]int, p.NumValues())
	for i := range p.Inputs {
		passes[i] = 1
	}
	for i := range p.Nodes {
		n, id := &p.Nodes[i], len(p.Inputs)+i
		for _, a := range n.Args {
			passes[id] = max(passes[id], passes[a])
		}
		c.add(p, n)
		if endsPass(p, n) {
			passes[id]++
		}
	}
	for _, o := range p.Outputs {
		if at := passes[o.Value]; p.TypeOf(o.Value).Size() > 1 {
			c.passes = max(c.passes, at)
		}
	}
	return c
}

// endsPass reports whether what follows the node needs another pass.
func endsPass(p *program.Program, n *program.Node) bool {
	info, _ := n.Op.Info()
	switch info.Class {
	case program.ClassReduce, program.ClassLinear, program.ClassLinalg:
		return p.TypeOf(n.Args[0]).Size() > 1
	}
	return n.Op == program.OpTranspose
}

func (c *cost) add(p *program.Program, n *program.Node) {
	info, _ := n.Op.Info()
	size := n.Type.Size()
	switch info.Class {
	case program.ClassUnary, program.ClassBinary, program.ClassCompare, program.ClassElementwise:
		c.operations += size
	case program.ClassReduce:
		c.operations += p.TypeOf(n.Args[0]).Size()
	case program.ClassLinalg:
		if n.Op == program.OpSortColumns {
			return
		}
		shape := n.Type.Shape
		c.products += p.TypeOf(n.Args[0]).Size() * int64(shape[len(shape)-1])
	case program.ClassLinear:
		if n.Op == program.OpHadamard { // additions, by the fast transform
			c.operations += size * int64(bits.Len(uint(n.Attr.Block))-1)
			return
		}
		for _, a := range n.Attr.LhsContract {
			size *= int64(p.TypeOf(n.Args[0]).Shape[a])
		}
		c.products += size
	}
}

// costRows and costWidth are the shape for which costs are counted: that of a small
// layer.
const costRows, costWidth = 256, 1024

const perElement = "per element"

// measure reports the costs of the default settings.
func (q *quantizerRun) measure(r *Report) {
	list := q.sites(q.space.singles[0], costRows, costWidth)
	if len(list) == 0 {
		return
	}
	s := list[0]
	n := float64(costRows * costWidth)
	forward, err := s.Program.Trim(sdk.OutputValue)
	if err != nil {
		return
	}
	r.add("forward", n, count(forward))
	parts, err := autodiff.Split(s.Program, []string{sdk.OutputValue}, sdk.OutputSurrogate, s.wrt()...)
	if err != nil {
		return
	}
	r.add("backward", n, count(parts.Backward))
	kept := int64(0)
	for _, residual := range parts.Residuals {
		if !residual.Input && residual.Name != sdk.OutputValue {
			kept += bytes(residual.Type)
		}
	}
	r.Measures = append(r.Measures, Measure{"kept for the backward pass", Number(float64(kept) / n), "bytes " + perElement})
	if s.Unpack != nil {
		r.add("unpack", n, count(s.Unpack))
	}
}

// add reports one program.
func (r *Report) add(what string, n float64, c cost) {
	r.Measures = append(r.Measures,
		Measure{what + ": operations", Number(float64(c.operations) / n), perElement},
		Measure{what + ": products", Number(float64(c.products) / n), perElement},
		Measure{what + ": passes over the tensor", Number(c.passes), ""})
}

// bytes is the size of a value on a device.
func bytes(t program.Type) int64 {
	if t.DType == program.Bool {
		return t.Size()
	}
	return 4 * t.Size()
}

// measure reports the costs of the default settings, and how large directions are.
func (o *optimizerRun) measure(r *Report) {
	s, err := o.accepted(o.space.singles[0])
	if err != nil || s == nil {
		return
	}
	o.measureDirections(r, s)
	shape := []int{costRows, costWidth}
	if len(s.shape) == 1 {
		shape = []int{costWidth}
	}
	if s, err = o.ask(o.space.singles[0], sdk.TensorRole(s.role), shape...); err != nil || !s.Accepts {
		return
	}
	n := float64(s.size())
	state := int64(0)
	for _, t := range s.State {
		state += bytes(program.FloatType(t.Shape...))
	}
	r.Measures = append(r.Measures, Measure{"state", Number(float64(state) / n), "bytes " + perElement})
	for name, p := range s.Programs() {
		if name != "init" {
			r.add(name, n, count(p))
		}
	}
}

// measureDirections reports the root mean square of u for random gradients of two
// sizes: equal numbers mean that the rate alone sets the size of a step.
func (o *optimizerRun) measureDirections(r *Report, s *tensor) {
	t := &trial{}
	for _, size := range []float64{1e-3, 1} {
		for _, steps := range []int{1, 20} {
			if u := o.walk(t, s, oracle{}, steps, size); u != nil {
				r.Measures = append(r.Measures, Measure{directionName(size, steps), Number(rootMeanSquare(u)), ""})
			}
		}
	}
}

func directionName(size float64, steps int) string {
	return fmt.Sprintf("size of u at update %d, gradients of size %v", steps, size)
}
