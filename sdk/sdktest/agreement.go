package sdktest

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// These constants configure the comparison of a machine in binary32 with the reference. An element
// may differ by closeness times the largest magnitude of its tensor (the error of a sum of a
// thousand terms) plus amplification times its change on the reference implementation when the
// inputs are perturbed: an element on a rounding boundary may go either way, as in training.
const (
	closeness     = 4e-6
	amplification = 16
	noise         = 0x1p-22 // relative perturbation: 4 ulps of binary32
	noises        = 6
	steadiness    = 256 * noise // largest relative change of an element that counts as unchanged
)

// expectation holds the reference implementation's results of a program for given inputs, and the
// change of each element under noise.
type expectation struct {
	outputs tensors
	spread  map[string][]float64
}

// expect runs p on the reference implementation with unmodified inputs, with every result rounded
// to binary32, and with noise in the float inputs, except the number of the step.
func expect(p *program.Program, inputs tensors) (expectation, error) {
	base, err := reference.Run(p, inputs)
	if err != nil {
		return expectation{}, err
	}
	e := expectation{outputs: base, spread: map[string][]float64{}}
	for name, v := range base {
		e.spread[name] = make([]float64, v.Len())
	}
	single, err := reference.Run32(p, inputs)
	if err != nil {
		return expectation{}, err
	}
	e.widen(single, 0)
	for i := range noises {
		noisy := maps.Clone(inputs)
		for name, in := range inputs {
			if in.Type.DType == program.Float && name != spec.InputStep {
				r := rand.New(rand.NewPCG(uint64(i), uint64(in.Len())))
				noisy[name] = reference.Floats(mapped(in.Floats, func(v float64) float64 {
					return v * (1 + noise*(2*r.Float64()-1))
				}), in.Type.Shape...)
			}
		}
		out, err := reference.Run(p, noisy)
		if err != nil {
			return expectation{}, err
		}
		e.widen(out, 0)
	}
	return e, nil
}

// widen extends the spread to cover the results out. It ignores changes of at most part times the
// largest magnitude of the tensor.
func (e expectation) widen(out tensors, part float64) {
	for name, base := range e.outputs {
		spread, other, least := e.spread[name], out[name].Float64s(), 0.0
		if base.Type.DType == program.Float {
			least = part * largest(base.Floats)
		}
		for i, v := range base.Float64s() {
			if d := distance(other[i], v); d > least {
				spread[i] = max(spread[i], d)
			}
		}
	}
}

// runRounded runs a program with its inputs in binary32. The result of each operation is randomly
// rounded to one of the two adjacent binary32 numbers, and divisions are randomly replaced by
// multiplications by the reciprocal.
func runRounded(p *program.Program, inputs tensors, r *rand.Rand) (tensors, error) {
	args := make([]reference.Tensor, len(p.Inputs))
	for i, in := range p.Inputs {
		args[i] = inputs[in.Name].Single()
	}
	var failed error
	interpret := func(_ program.ID, n *program.Node, args []reference.Tensor) (out reference.Tensor) {
		if failed != nil {
			return out
		}
		if n.Op == program.OpDiv && r.IntN(2) == 0 {
			inverse := rounded(mapped(args[1].Floats, func(v float64) float64 { return 1 / v }))
			if !slices.ContainsFunc(inverse, func(v float64) bool { return math.IsNaN(v - v) }) {
				n = &program.Node{Op: program.OpMul, Args: n.Args, Type: n.Type}
				args = []reference.Tensor{args[0], reference.Floats(inverse, args[1].Type.Shape...)}
			}
		}
		if out, failed = reference.Apply(n, args...); out.Type.DType != program.Float {
			return out
		}
		out.Floats = mapped(out.Floats, func(v float64) float64 {
			near := float32(v)
			if float64(near) != v && r.IntN(2) == 0 {
				near = math.Nextafter32(near, float32(math.Inf(cmp.Compare(v, float64(near)))))
			}
			return float64(near)
		})
		return out
	}
	values := transform.Interpret(p, args, interpret)
	out := tensors{}
	for _, o := range p.Outputs {
		out[o.Name] = values[o.Value]
	}
	return out, failed
}

func (e expectation) allowed(name string) func(i int) float64 {
	out, spread, base := e.outputs[name], e.spread[name], 0.0
	if out.Type.DType == program.Float {
		base = closeness * largest(out.Floats)
	}
	return func(i int) float64 { return base + amplification*spread[i] }
}

// compare fails unless every machine agrees with the reference implementation on all outputs of p.
func (t *trial) compare(on example, ms []Machine, what string, p *program.Program, inputs tensors) {
	e, err := expect(p, inputs)
	if !t.ok(on, err) {
		return
	}
	for _, m := range ms {
		got, err := m.Run(p, inputs)
		if !t.ok(on.on(m), err) {
			continue
		}
		differs := false
		for name, want := range e.outputs {
			allowed, data := e.allowed(name), got[name].Float64s()
			for i, v := range want.Float64s() {
				d := distance(data[i], v)
				differs = differs || d != 0 && d > allowed(i)
			}
		}
		// A device may replace a division by a product with the reciprocal, or fuse two operations
		// into one rounding. A value midway between two levels, such as the largest entry on some
		// grids, may then go either way. Noise in the inputs does not reveal that: it moves the entry
		// together with its scale. Elements that are unchanged up to rounding keep their spread.
		for seed := uint64(0); differs && seed < 32; seed++ {
			out, err := runRounded(p, inputs, rand.New(rand.NewPCG(seed, 7)))
			if !t.ok(on.on(m), err) {
				return
			}
			e.widen(out, steadiness)
		}
		for name, want := range e.outputs {
			data := got[name].Float64s()
			t.within(on.on(m), what+name, want.Type.Shape, data, want.Float64s(), e.allowed(name))
		}
	}
}
