package sdktest

import (
	"fmt"
	"maps"
	"math"
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

// checkGradient compares the reverse pass of the surrogate with central differences of Σ
// dy·surrogate at some elements of each input. It tries two difference widths, because a kink
// within the difference makes one of them wrong.
func (q *quantizerRun) checkGradient(t *trial, in *instance, x []float64) {
	if in.Backward != nil {
		return
	}
	// At the initial value of a trained parameter, or of state, the largest entry may lie exactly
	// on the clipping boundary.
	for name, v := range in.memory {
		in.memory[name] = reference.Floats(scaled(1.0137, v.Floats), v.Type.Shape...).Single()
	}
	dy := normal(5, in.shape...)
	gradient := in.gradient(x, dy)
	p, inputs, err := frozen(in.Program, spec.OutputSurrogate, in.inputs(in.Program, x))
	t.must(in.at(), err)
	r := rand.New(rand.NewPCG(4, 4))
	for _, name := range in.Differentiable() {
		got, point := gradient[autodiff.Prefix+name], inputs[name]
		for range min(12, got.Len()) {
			i := r.IntN(got.Len())
			t.run(func() {
				t.begin()
				var want float64
				for _, h := range []float64{1e-5, 1e-7} {
					var sums [2]float64
					for k, sign := range []float64{1, -1} {
						moved := maps.Clone(inputs)
						at := with(point.Floats, i, point.Floats[i]+sign*h)
						moved[name] = reference.Floats(at, point.Type.Shape...)
						out, err := reference.Run(p, moved)
						t.must(in.at(), err)
						sums[k] = floats.Dot(out[spec.OutputSurrogate].Floats, dy)
					}
					want = (sums[0] - sums[1]) / (2 * h)
					if distance(got.Floats[i], want) <= 1e-6*(1+largest(got.Floats)) {
						return
					}
				}
				e := in.at()
				if name == spec.InputX {
					e = in.given(x)
				}
				f := e.element("gradient by "+name+", against central differences of the surrogate",
					i, got.Type.Shape, got.Floats)
				f.Want = number(want)
				t.add(f)
				t.hintAtNaN(got.Floats)
			})
		}
	}
}

// frozen returns a program that computes only the given output of p, and this program's inputs.
// Values that pass through stop_gradient become inputs with their current values, because the
// reverse pass treats them as constants.
func frozen(p *program.Program, output string, inputs tensors) (*program.Program, tensors, error) {
	p, err := transform.Trim(p, output)
	if err != nil {
		return nil, nil, err
	}
	inputs = maps.Clone(inputs)
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
			return nil, nil, err
		}
		values, err := reference.Run(before, inputs)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(inputs, values)
	}
	p, err = transform.Extract(p, p.Name, args, p.Outputs)
	return p, inputs, err
}

// checkGradientSize computes the Jacobian of the surrogate with respect to x, both for ordinary x
// and for x with outliers, whose gradient a mask stops.
func (q *quantizerRun) checkGradientSize(t *trial) {
	for _, v := range q.space.core() {
		if v.claims(sdk.ClaimAnyGradient) {
			t.notef("any_gradient is claimed")
			continue
		}
		for _, d := range []int{33, 64} {
			for _, s := range q.sites(v, 1, d) {
				x := normal(6, 1, d)
				outliers := slices.Clone(x)
				for i := 2; i < len(outliers); i += 7 {
					outliers[i] *= 6
				}
				t.run(func() { s.instance(t, Reference{}, x).checkJacobian(x, len(v.changed) == 0) })
				t.run(func() { s.instance(t, Reference{}, x).checkJacobian(outliers, false) })
			}
		}
	}
}

// checkJacobian checks the Jacobian. With the masked straight-through gradient dx = Hᵀ(M ⊙ H·dx̂),
// the trace of the Jacobian is the number of entries that the mask passes, for any rotation H;
// without a rotation, the diagonal equals the mask. With a custom backward pass, the diagonal
// averages about 1, and is 0 where the mask stops the gradient, unless entries are mixed.
func (in *instance) checkJacobian(x []float64, byDefault bool) {
	mask, trace, n := in.quantize(x).mask, 0.0, float64(len(x))
	diagonal, mixes := make([]float64, len(x)), false
	for i := range x {
		row := in.byX(x, with(make([]float64, len(x)), i, 1))
		diagonal[i], row[i] = row[i], 0
		trace += diagonal[i]
		mixes = mixes || largest(row) > 1e-6
	}
	in.t.begin()
	passed := n
	if len(mask) > 0 {
		passed = floats.Sum(mask)
	}
	meant := "if this is intended, " + claim(sdk.ClaimAnyGradient)
	if len(mask) == 0 || in.Backward != nil {
		if byDefault && !(trace > least*passed && trace < greatest*passed) {
			in.t.failf(in.at(), "the gradient passes with a factor of %.4g on average, want about 1; %s",
				trace/passed, meant)
		}
		if len(mask) > 0 && !mixes {
			for i := range diagonal {
				diagonal[i] *= 1 - mask[i]
			}
			const what = "factor with which the gradient passes where the mask stops it"
			in.equal(x, what, diagonal, make([]float64, len(x)))
		}
		return
	}
	if distance(trace, passed) > 1e-6*n {
		in.t.failf(in.at(), "the gradient passes with factors that add up to %.6g, "+
			"but the mask passes %v of %v entries; %s", trace, passed, n, meant)
	} else if !mixes {
		in.within(x, "factor of the gradient, against the mask,", diagonal, mask, upTo(1e-6))
	}
	if byDefault && passed < n/2 && !in.variant.claims(sdk.ClaimPrunes) {
		in.t.failf(in.at(), "the mask stops %v of %v entries of a normal row: is it inverted? "+
			"(if entries are pruned, %s)", n-passed, n, claim(sdk.ClaimPrunes))
	}
}

// checkOwnBackward checks a custom backward pass, for which there are no reference values. It
// requires the properties of every gradient: it is finite, it is zero where dy is zero (unless the
// quantizer has a loss of its own), and rows are independent.
func (q *quantizerRun) checkOwnBackward(t *trial, in *instance, x []float64) {
	if in.Backward == nil {
		return
	}
	n := len(x)
	zeros, dy := make([]float64, n), normal(5, in.shape...)
	sparse := slices.Clone(dy)
	for i := 0; i < n; i += 2 {
		sparse[i] = 0
	}
	for _, at := range []struct {
		what  string
		x, dy []float64
	}{
		{"", x, dy}, {" where half of dy is zero", x, sparse}, {" where dy is zero", x, zeros},
		{" where x is zero", zeros, dy}, {" where all is zero", zeros, zeros},
		{" of a large dy", x, scaled(0x1p40, dy)}, {" of a small dy", x, scaled(0x1p-100, dy)},
	} {
		for name, v := range inOrder(in.from(at.x).gradient(at.x, at.dy)) {
			if !t.finite(in.at(), name+at.what, v.Type.Shape, v.Floats) {
				t.hintAtNaN(v.Floats)
			}
		}
	}
	if !in.variant.claims(sdk.ClaimOwnLoss) {
		for name, v := range inOrder(in.gradient(x, zeros)) {
			t.equal(in.at(), name+" where dy is zero (if the quantizer adds a loss, "+
				claim(sdk.ClaimOwnLoss)+")", v.Type.Shape, v.Floats, make([]float64, v.Len()))
		}
	}
	if in.m != (Reference{}) || !in.independentRows(x) {
		return
	}
	// Other rows of x and dy must not change the gradient of a row.
	base, d := in.byX(x, dy), in.shape[1]
	for i := range in.shape[0] {
		from, to := i*d, (i+1)*d
		others, otherDY := scaled(-3, x), scaled(-3, dy)
		copy(others[from:to], x[from:to])
		copy(otherDY[from:to], dy[from:to])
		t.run(func() {
			t.equal(in.given(x[from:to]), fmt.Sprintf("d.x of row %d among other rows of x and dy", i),
				[]int{1, d}, in.byX(others, otherDY)[from:to], base[from:to])
		})
	}
}

// hintAtNaN notes the most common cause of NaN in a gradient, if there is one.
func (t *trial) hintAtNaN(gradient []float64) {
	if slices.ContainsFunc(gradient, math.IsNaN) {
		t.notef("a gradient of NaN is often 0·Inf, from the branch of a Select that is not taken: " +
			"select a safe argument, too (in JAX jnp.where(ok, f(jnp.where(ok, x, 1)), 0))")
	}
}

// checkLearning checks that the surrogate trains a parameter. The gradient check cannot do that: it
// compares the reverse pass of the surrogate with the surrogate itself, so it notices neither a
// missing surrogate nor a wrong sign. But a trained parameter should reduce the error ½·Σ (Q(x) −
// x)², whose gradient with respect to Q(x) is Q(x) − x. From a parameter that is far off, a step
// against the gradient must reduce the error, and a step along it must not.
func (q *quantizerRun) checkLearning(t *trial, in *instance, x []float64) {
	if len(x) < 64 || in.Init == nil {
		return // too few elements for a significant error
	}
	// Each parameter is tried at its initial value, which may already be optimal, and away from it,
	// scaled or shifted. The others keep their initial values.
	for _, p := range in.Trained {
		name := spec.TrainedPrefix + p.Name
		t.run(func() {
			t.begin()
			at := func(v []float64) *instance {
				other := *in
				other.memory = maps.Clone(in.memory)
				other.memory[name] = reference.Floats(v, in.memory[name].Type.Shape...)
				return &other
			}
			errorOf := func(in *instance) (e float64, d []float64) {
				d = axpy(in.quantize(x).value, -1, x)
				return floats.Dot(d, d) / 2, d
			}
			start := in.memory[name].Floats
			shift := full(rootMeanSquare(x), len(start))
			moves := false
			for i, v := range [][]float64{
				start, scaled(8, start), scaled(0.125, start), axpy(start, 2, shift), axpy(start, -2, shift),
			} {
				from := at(v)
				e, d := errorOf(from)
				gradient := from.gradient(x, d)[autodiff.Prefix+name].Float64s()
				most := largest(gradient)
				if most == 0 || floats.HasNaN(gradient) || math.IsNaN(e) {
					continue
				}
				moves = true
				if i == 0 {
					continue
				}
				best := map[float64]float64{-1: e, 1: e} // of several step lengths, by sign
				for sign := range best {
					for _, part := range []float64{0.01, 0.1, 0.3, 0.6, 0.875, 1, 1.2, 2} {
						other, _ := errorOf(at(axpy(v, sign*part*largest(v)/most, gradient)))
						if other < best[sign] { // false for NaN
							best[sign] = other
						}
					}
				}
				// Chance, such as the rounding of one element, would not halve the error.
				if best[-1] >= e && best[1] <= e/2 {
					t.failf(in.at(), "from %s = %.4g, where the error is %.4g, no step against its gradient "+
						"reduces it, and one along it leaves %.4g: the sign is wrong", name, v[0], e, best[1])
					return
				}
			}
			if !moves {
				t.failf(in.at(), "%s is never trained: the gradient of the error is always zero", name)
			}
		})
	}
}
