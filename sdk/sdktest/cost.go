package sdktest

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Cost is the total cost of a program.
type Cost struct {
	Operations int64 // results of elementwise operations, and elements folded by reductions
	Products   int64 // multiplications in products, rotations and factorizations
	Passes     int   // times the tensor has to be read, one after the other
}

// CostOf adds up what a program costs after it has been simplified in the way that hosts
// do it. A pass over the tensor ends where a result depends on more than the
// corresponding elements: at a reduction, a product, a rotation or a transposition.
// Elementwise operations in between are taken as fused into one pass.
func CostOf(p *program.Program) Cost {
	if s, err := simplify.Program(p); err == nil {
		p = s
	}
	var c Cost
	passes := transform.Interpret(p, slices.Repeat([]int{1}, len(p.Inputs)), func(_ program.ID, n *program.Node, args []int) int {
		c.add(p, n)
		at := slices.Max(append(args, 0))
		if endsPass(p, n) {
			at++
		}
		return at
	})
	for _, o := range p.Outputs {
		if at := passes[o.Value]; p.TypeOf(o.Value).Size() > 1 {
			c.Passes = max(c.Passes, at)
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

func (c *Cost) add(p *program.Program, n *program.Node) {
	info, _ := n.Op.Info()
	size := n.Type.Size()
	switch info.Class {
	case program.ClassUnary, program.ClassBinary, program.ClassCompare, program.ClassElementwise:
		c.Operations += size
	case program.ClassReduce:
		c.Operations += p.TypeOf(n.Args[0]).Size()
	case program.ClassLinalg:
		if n.Op == program.OpSortColumns {
			return
		}
		shape := n.Type.Shape
		c.Products += p.TypeOf(n.Args[0]).Size() * int64(shape[len(shape)-1])
	case program.ClassLinear:
		if n.Op == program.OpHadamard { // additions, by the fast transform
			c.Operations += size * int64(bits.Len(uint(n.Attr.Block))-1)
			return
		}
		for _, a := range n.Attr.LhsContract {
			size *= int64(p.TypeOf(n.Args[0]).Shape[a])
		}
		c.Products += size
	}
}

// costRows and costWidth are the shape for which costs are counted: that of a small
// layer.
const costRows, costWidth = 256, 1024

const perElement = "per element"

// measure reports the costs of the default settings.
func (q *quantizerRun) measure() {
	list := q.sites(q.space.singles[0], costRows, costWidth)
	if len(list) == 0 {
		return
	}
	s := list[0]
	n := float64(costRows * costWidth)
	forward, err := transform.Trim(s.Program, spec.OutputValue)
	if err != nil {
		return
	}
	q.report.add("forward", n, forward)
	parts, err := s.Split()
	if err != nil {
		return
	}
	q.report.add("backward", n, parts.Backward)
	kept := int64(0)
	for _, residual := range parts.Residuals {
		if !residual.Input && residual.Name != spec.OutputValue {
			kept += bytes(residual.Type)
		}
	}
	q.report.measure("kept for the backward pass", float64(kept)/n, "bytes "+perElement)
	if s.Unpack != nil {
		q.report.add("unpack", n, s.Unpack)
	}
}

func (r *Report) measure(name string, v float64, unit string) {
	r.Measures = append(r.Measures, Measure{name, Number(v), unit})
}

// add reports the costs of one program for a tensor of n elements.
func (r *Report) add(what string, n float64, p *program.Program) {
	c := CostOf(p)
	r.measure(what+": operations", float64(c.Operations)/n, perElement)
	r.measure(what+": products", float64(c.Products)/n, perElement)
	r.measure(what+": passes over the tensor", float64(c.Passes), "")
}

// bytes is the size of a value on a device, in bytes.
func bytes(t program.Type) int64 {
	if t.DType == program.Bool {
		return t.Size()
	}
	return 4 * t.Size()
}

// measure reports how large directions are, and the costs of the default settings. The
// root mean squares of u for random gradients of two sizes are equal if the rate alone
// sets the size of a step.
func (o *optimizerRun) measure() {
	list, _ := o.accepted(o.space.singles[0])
	if len(list) == 0 {
		return
	}
	s := list[0]
	for _, size := range []float64{1e-3, 1} {
		for _, steps := range []int{1, 20} {
			if u := s.walk(&trial{}, Oracle{}, steps, size); u != nil {
				o.report.measure(fmt.Sprintf("size of u at update %d, gradients of size %v", steps, size), rootMeanSquare(u), "")
			}
		}
	}
	shape := []int{costRows, costWidth}
	if len(s.shape) == 1 {
		shape = shape[1:]
	}
	s, err := o.ask(o.space.singles[0], sdk.TensorRole(s.role), shape...)
	if err != nil || !s.Accepts {
		return
	}
	n := float64(s.size())
	state := int64(0)
	for _, t := range s.State {
		state += program.FloatType(t.Shape...).Size() * int64(t.Storage.Bytes())
	}
	o.report.measure("state", float64(state)/n, "bytes "+perElement)
	for name, p := range s.Programs() {
		if name != "init" {
			o.report.add(name, n, p)
		}
	}
}
