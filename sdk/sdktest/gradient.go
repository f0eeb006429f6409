package sdktest

import (
	"maps"
	"math/rand/v2"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// byX is the gradient by x alone.
func (in *instance) byX(x, dy []float64) ([]float64, error) {
	out, err := in.gradient(x, dy)
	return out[autodiff.Prefix+sdk.InputX].Float64s(), err
}

// probes is the number of elements of an input at which central differences are
// taken.
const probes = 12

// checkGradient compares the reverse pass of the surrogate with central differences
// of Σ dy·surrogate.
func (q *quantizerRun) checkGradient(t *trial) {
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		in.shiftTrained()
		dy := normal(5, in.shape...)
		gradient, err := in.gradient(x, dy)
		if !t.ok(in.at(), err) {
			return
		}
		f, err := newFrozen(in.Program, sdk.OutputSurrogate, in.inputs(x))
		if !t.ok(in.at(), err) {
			return
		}
		r := rand.New(rand.NewPCG(4, 4))
		for _, name := range in.wrt() {
			got := gradient[autodiff.Prefix+name]
			for range min(probes, got.Len()) {
				in.probe(t, f, name, r.IntN(got.Len()), dy, got)
			}
		}
	})
}

// shiftTrained moves the trained parameters a little from where they start, which may
// be just where the largest entry is clipped.
func (in *instance) shiftTrained() {
	for name, v := range in.trained {
		in.trained[name] = reference.Floats(single(scaled(1.0137, v.Floats)), v.Type.Shape...)
	}
}

// probe compares one element of the gradient by one input. A difference across a
// kink is wrong for one width and right for another.
func (in *instance) probe(t *trial, f *frozen, name string, i int, dy []float64, got reference.Tensor) {
	t.tried()
	gradient := got.Floats
	var want float64
	for _, h := range []float64{1e-5, 1e-7} {
		var err error
		if want, err = f.difference(name, i, h, dy); !t.ok(in.at(), err) {
			return
		}
		if distance(gradient[i], want) <= 1e-6*(1+largest(gradient)) {
			return
		}
	}
	p := in.at()
	if name == sdk.InputX {
		p = in.given(f.inputs[name].Floats)
	}
	fail := p.element("gradient by "+name+", against central differences of the surrogate", i, got.Type.Shape, gradient)
	fail.Want = number(want)
	t.add(fail)
}

// frozen is a program one of whose outputs is evaluated around a point, with what
// passes stop_gradient kept as it is there: what the reverse pass calls constant.
type frozen struct {
	p      *program.Program
	output string
	inputs map[string]reference.Tensor
}

// frozenPrefix names the inputs that stand for the stopped values.
const frozenPrefix = "frozen."

func newFrozen(p *program.Program, output string, inputs map[string]reference.Tensor) (*frozen, error) {
	trimmed, err := p.Trim(output)
	if err != nil {
		return nil, err
	}
	stops, err := stopped(trimmed)
	if err != nil {
		return nil, err
	}
	f := &frozen{output: output, inputs: maps.Clone(inputs)}
	if stops != nil {
		values, err := reference.Run(stops, inputs)
		if err != nil {
			return nil, err
		}
		maps.Copy(f.inputs, values)
	}
	f.p, err = withoutStops(trimmed, output)
	return f, err
}

// difference is the central difference of Σ dy·output by one element of an input.
func (f *frozen) difference(name string, i int, h float64, dy []float64) (float64, error) {
	at := f.inputs[name]
	defer func() { f.inputs[name] = at }()
	var sums [2]float64
	for k, sign := range []float64{1, -1} {
		f.inputs[name] = reference.Floats(with(at.Floats, i, at.Floats[i]+sign*h), at.Type.Shape...)
		out, err := reference.Run(f.p, f.inputs)
		if err != nil {
			return 0, err
		}
		sums[k] = dotProduct(out[f.output].Floats, dy)
	}
	return (sums[0] - sums[1]) / (2 * h), nil
}

// stopped returns a program whose outputs are the operands of stop_gradient, named
// as the inputs of withoutStops; nil when there are none.
func stopped(p *program.Program) (*program.Program, error) {
	c := newCopy(p)
	found := false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		v := c.node(n)
		if n.Op == program.OpStopGradient {
			c.b.Output(stopName(p, i), v)
			found = true
		}
	}
	if !found {
		return nil, nil
	}
	return c.b.Build()
}

// withoutStops returns p with an input in the place of each stop_gradient.
func withoutStops(p *program.Program, output string) (*program.Program, error) {
	c := newCopy(p)
	stops := map[int]program.Value{}
	for i := range p.Nodes {
		if p.Nodes[i].Op == program.OpStopGradient {
			stops[i] = c.b.Input(stopName(p, i), p.Nodes[i].Type)
		}
	}
	for i := range p.Nodes {
		if v, ok := stops[i]; ok {
			c.values = append(c.values, v)
			continue
		}
		c.node(&p.Nodes[i])
	}
	id, _ := p.Output(output)
	c.b.Output(output, c.values[id])
	return c.b.Build()
}
