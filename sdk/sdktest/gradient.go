package sdktest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// probes is the number of elements of an input at which central differences are
// taken.
const probes = 12

// checkGradient compares the reverse pass of the surrogate with central differences
// of Σ dy·surrogate.
func (q *quantizerRun) checkGradient(t *trial, in *instance, x []float64) {
	if in.Backward != nil {
		return
	}
	// At the initial value of a trained parameter, or of state, the largest entry may be on
	// the very edge of being clipped.
	for _, values := range []map[string]reference.Tensor{in.trained, in.kept} {
		for name, v := range values {
			values[name] = reference.Floats(scaled(1.0137, v.Floats), v.Type.Shape...).Single()
		}
	}
	dy := normal(5, in.shape...)
	gradient := in.gradient(x, dy)
	f, err := newFrozen(in.Program, spec.OutputSurrogate, in.inputs(x))
	t.must(in.at(), err)
	r := rand.New(rand.NewPCG(4, 4))
	for _, name := range in.Differentiable() {
		got := gradient[autodiff.Prefix+name]
		for range min(probes, got.Len()) {
			i := r.IntN(got.Len())
			t.run(func() { in.probe(f, name, i, dy, got) })
		}
	}
}

// probe compares one element of the gradient with respect to one input. It tries two
// widths, because a difference across a kink is wrong for one width and right for another.
func (in *instance) probe(f *frozen, name string, i int, dy []float64, got reference.Tensor) {
	in.t.announce()
	gradient := got.Floats
	var want float64
	for _, h := range []float64{1e-5, 1e-7} {
		var err error
		want, err = f.difference(name, i, h, dy)
		in.t.must(in.at(), err)
		if distance(gradient[i], want) <= 1e-6*(1+largest(gradient)) {
			return
		}
	}
	e := in.at()
	if name == spec.InputX {
		e = in.given(f.inputs[name].Floats)
	}
	fail := e.element("gradient by "+name+", against central differences of the surrogate", i, got.Type.Shape, gradient)
	fail.Want = number(want)
	in.t.add(fail)
	in.t.hintAtNaN(gradient)
}

// frozen is a program of which one output is evaluated around a point. What passes
// through stop_gradient keeps the value that it has at the point, because the reverse
// pass treats it as a constant.
type frozen struct {
	p      *program.Program
	output string
	inputs map[string]reference.Tensor
}

func newFrozen(p *program.Program, output string, inputs map[string]reference.Tensor) (*frozen, error) {
	p, err := transform.Trim(p, output)
	if err != nil {
		return nil, err
	}
	f := &frozen{output: output, inputs: maps.Clone(inputs)}
	args, operands := transform.Arguments(p), []program.Output{}
	for i, n := range p.Nodes {
		if n.Op == program.OpStopGradient {
			id := program.ID(len(p.Inputs) + i)
			name := fmt.Sprint("frozen.", id)
			args = append(args, program.Output{Name: name, Value: id})
			operands = append(operands, program.Output{Name: name, Value: n.Args[0]})
		}
	}
	if len(operands) > 0 {
		before, err := transform.Extract(p, p.Name, transform.Arguments(p), operands)
		if err != nil {
			return nil, err
		}
		values, err := reference.Run(before, inputs)
		if err != nil {
			return nil, err
		}
		maps.Copy(f.inputs, values)
	}
	f.p, err = transform.Extract(p, p.Name, args, p.Outputs)
	return f, err
}

// difference is the central difference of Σ dy·output with respect to one element of an input.
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
		sums[k] = floats.Dot(out[f.output].Floats, dy)
	}
	return (sums[0] - sums[1]) / (2 * h), nil
}

// checkGradientSize computes the Jacobian of the surrogate with respect to x. With the masked
// straight-through gradient dx = Hᵀ(M ⊙ H·dx̂) its trace is the number of entries that the
// mask passes, whatever the rotation H; without a rotation the diagonal is the mask itself.
func (q *quantizerRun) checkGradientSize(t *trial) {
	for _, v := range q.space.core() {
		if v.claims(sdk.ClaimAnyGradient) {
			t.notef("any_gradient is claimed")
			continue
		}
		for _, d := range []int{33, 64} {
			for _, s := range q.sites(v, 1, d) {
				x := normal(6, 1, d)
				t.run(func() { s.instance(t, Oracle{}, x).checkJacobian(x, len(v.changed) == 0, v.claims(sdk.ClaimPrunes)) })
				t.run(func() { s.instance(t, Oracle{}, x).checkJacobian(withOutliers(x), false, v.claims(sdk.ClaimPrunes)) })
			}
		}
	}
}

// withOutliers is x with some entries that are far larger than the others, as in
// activations: a mask stops them.
func withOutliers(x []float64) []float64 {
	out := slices.Clone(x)
	for i := 2; i < len(out); i += 7 {
		out[i] *= 6
	}
	return out
}

func (in *instance) checkJacobian(x []float64, byDefault, prunes bool) {
	mask, trace, n := in.quantize(x).mask, 0.0, float64(len(x))
	diagonal, mixes := make([]float64, len(x)), false
	for i := range x {
		row := in.byX(x, with(make([]float64, len(x)), i, 1))
		diagonal[i], row[i] = row[i], 0
		trace += diagonal[i]
		mixes = mixes || largest(row) > 1e-6
	}
	in.t.announce()
	if in.Backward != nil {
		in.checkPasses(x, mask, diagonal, mixes, byDefault)
		return
	}
	if len(mask) == 0 {
		if byDefault && !(trace > least*n && trace < greatest*n) {
			in.t.failf(in.at(), "the gradient passes with a factor of %.4g in the mean, want about 1; if that is meant, %s", trace/n, claim(sdk.ClaimAnyGradient))
		}
		return
	}
	passed := floats.Sum(mask)
	if distance(trace, passed) > 1e-6*n {
		in.t.failf(in.at(), "the gradient passes with factors that add up to %.6g, but the mask passes %v of %v entries; if that is meant, %s", trace, passed, n, claim(sdk.ClaimAnyGradient))
	} else if !mixes {
		in.within(x, "factor with which the gradient passes, against the mask,", diagonal, mask, upTo(1e-6))
	}
	if byDefault && passed < n/2 && !prunes {
		in.t.failf(in.at(), "the mask stops %v of %v entries of a normal row: is it inverted? (if it is pruned, %s)", n-passed, n, claim(sdk.ClaimPrunes))
	}
}
