package sdktest

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// noiseDraws is the number of keys over which the mean of a random rounding is taken, and
// maxDeviations how many standard errors it may be off. rareDraws is how many times something may
// be expected that happens in no draw, however unlikely that is. With these, a bias of a fifth of a
// step is found in a single element, and of a hundredth in the whole matrix. The keys are always
// the same, so that the check does not depend on chance.
const (
	noiseDraws    = 400
	maxDeviations = 6
	rareDraws     = 20
)

func (q *quantizerRun) checkNoise(t *trial) {
	q.onOracle(func(_ *trial, in *instance, x []float64) {
		for _, input := range []string{spec.InputNoise, spec.InputSharedNoise} {
			if in.Takes(input) && len(x) >= enoughEntries {
				in.usesKey(input, x)
			}
		}
	})(t)
	for _, v := range q.space.core() {
		if !v.claims(sdk.ClaimUnbiased) {
			continue
		}
		for _, s := range q.firstSites(v) {
			if !s.evaluates {
				x := normal(0, s.shape...)
				t.run(func() { s.instance(t, Oracle{}, x).unbiased(x) })
			}
		}
	}
}

// firstSites are the answers at the first of the matrix shapes that is not refused; those that
// rotate refuse rows of odd length.
func (q *quantizerRun) firstSites(v variant) (list []*siteAnswer) {
	for _, shape := range matrixShapes {
		if list = q.sites(v, shape...); len(list) > 0 {
			break
		}
	}
	return list
}

func (in *instance) usesKey(input string, x []float64) {
	in.t.announce()
	results := func(step int) map[string]reference.Tensor {
		out := map[string]reference.Tensor{}
		for _, p := range []*program.Program{in.Program, in.Next} {
			if p == nil {
				continue
			}
			given := in.inputsOf(p, x)
			if _, ok := given[input]; ok {
				given[input] = keyAt(step, 7)
			}
			maps.Copy(out, in.run(p, given))
		}
		maps.Copy(out, in.noisyGradients(x, input, keyAt(step, 7)))
		return out
	}
	base := results(0)
	for step := range 4 {
		for name, v := range results(1 + step) {
			if !slices.Equal(v.Float64s(), base[name].Float64s()) {
				return
			}
		}
	}
	in.t.failf(in.at(), "the program takes %s, but its results are the same with other keys", input)
}

// unbiased compares the mean of Q(x) over many keys with x, element by element, and in the
// direction of x for all elements together.
func (in *instance) unbiased(x []float64) {
	draws := make([][]float64, noiseDraws)
	along := make([]float64, noiseDraws) // Σ (Q(x) − x)·sign(x), which is not 0 if values shrink or grow
	for k := range draws {
		draws[k] = in.atStep(k).quantize(x).value
		for i, v := range draws[k] {
			along[k] += (v - x[i]) * math.Copysign(1, x[i])
		}
	}
	mean, allowed := make([]float64, len(x)), make([]float64, len(x))
	each, step := make([]float64, noiseDraws), 0.0
	for i := range x {
		for k := range draws {
			each[k] = draws[k][i]
		}
		m, deviation := moments(each)
		mean[i], allowed[i] = m, maxDeviations*deviation/math.Sqrt(noiseDraws)+1e-9*largest(x)
		step = max(step, floats.Max(each)-floats.Min(each))
	}
	for i := range allowed { // an element that has not left its level might have
		allowed[i] += step * rareDraws / noiseDraws
	}
	in.within(x, "the mean over the noise of Q(x), against x, as unbiased claims,", mean, x, func(i int) float64 { return allowed[i] })
	m, deviation := moments(along)
	in.t.announce()
	if most := maxDeviations*deviation/math.Sqrt(noiseDraws) + 1e-9*largest(x)*float64(len(x)); math.Abs(m) > most {
		in.t.failf(in.at(), "in the mean over the noise, values grow by %.3g each, want at most %.3g, as unbiased claims", m/float64(len(x)), most/float64(len(x)))
	}
}

func moments(x []float64) (mean, deviation float64) {
	mean = floats.Sum(x) / float64(len(x))
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}
