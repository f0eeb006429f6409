package sdktest

import (
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// The gradient check compares the reverse pass of the surrogate with the surrogate, and
// so it cannot know whether the surrogate is a good one: none would be zero, and a wrong
// sign would be wrong on both sides. What a trained parameter is there for can be
// measured, though: ½·Σ (Q(x) − x)², with dx̂ = Q(x) − x. From a parameter that is far
// off, a step against its gradient has to make that smaller, and not one along it.

// offFactors and offShifts take a trained parameter away from where it starts: times a
// factor, or plus so many times the root mean square of x.
var (
	offFactors = []float64{8, 0.125}
	offShifts  = []float64{2, -2}
)

// lessonSteps are the lengths of the steps that are tried, in parts of the parameter.
var lessonSteps = []float64{0.01, 0.1, 0.3, 0.6, 0.875, 1, 1.2, 2}

// enough is the part to which the error must come down along the gradient to prove its
// sign wrong. Half is more than the chance of a single rounding brings.
const enough = 0.5

// lesson is a trained parameter under test; the others stay where they start.
type lesson struct {
	*instance
	x    []float64
	name string // of the input
}

// checkLearning looks at every trained parameter.
func (q *quantizerRun) checkLearning(t *trial) {
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		if len(x) < 64 || in.Init == nil {
			return // too few numbers to tell an error from chance
		}
		for _, p := range in.Trained {
			lesson{in, x, sdk.TrainedPrefix + p.Name}.run(t)
		}
	})
	if t.check.Tried == 0 {
		t.skipf("none")
	}
}

// run tries the parameter at its start, where it may be best already, and away from it.
func (l lesson) run(t *trial) {
	t.tried()
	start := l.trained[l.name].Floats
	places := [][]float64{start}
	for _, c := range offFactors {
		places = append(places, scaled(c, start))
	}
	for _, c := range offShifts {
		size := c * math.Sqrt(dotProduct(l.x, l.x)/float64(len(l.x)))
		places = append(places, moved(start, full(1, len(start)), size))
	}
	moves := false
	for i, v := range places {
		e, gradient, err := l.look(v)
		if !t.ok(l.given(l.x), err) {
			return
		}
		most := largest(gradient)
		if most == 0 || math.IsNaN(dotProduct(gradient, gradient)) || math.IsNaN(e) {
			continue
		}
		moves = true
		if i > 0 && !l.leads(t, v, scaled(1/most, gradient), e) {
			return
		}
	}
	if !moves {
		t.failf(l.at(), "the gradient of the error by %s is zero wherever that is: it is never trained", l.name)
	}
}

// leads takes steps of several lengths against the gradient and along it. It fails when
// only the latter make the error smaller.
func (l lesson) leads(t *trial, v, gradient []float64, e float64) bool {
	size := largest(v)
	best := map[float64]float64{}
	for _, sign := range []float64{-1, 1} {
		best[sign] = e
		for _, part := range lessonSteps {
			other, err := l.error(moved(v, gradient, sign*part*size))
			if !t.ok(l.given(l.x), err) {
				return false
			}
			if other < best[sign] { // not NaN, either
				best[sign] = other
			}
		}
	}
	if best[-1] < e || best[1] > enough*e {
		return true
	}
	t.failf(l.at(), "from %s = %.4g, where the error is %.4g, no step against its gradient makes it smaller, and one along it leaves %.4g: the sign is wrong",
		l.name, v[0], e, best[1])
	return false
}

// moved is v + c·direction.
func moved(v, direction []float64, c float64) []float64 {
	out := slices.Clone(v)
	for i, d := range direction {
		out[i] += c * d
	}
	return out
}

// with is the instance with the parameter at v.
func (l lesson) with(v []float64) *instance {
	other := *l.instance
	other.trained = maps.Clone(l.trained)
	other.trained[l.name] = reference.Floats(v, l.trained[l.name].Type.Shape...)
	return &other
}

// error is ½·Σ (Q(x) − x)² with the parameter at v.
func (l lesson) error(v []float64) (float64, error) {
	out, err := l.with(v).quantize(l.x)
	if err != nil {
		return 0, err
	}
	d := difference(out.value, l.x)
	return dotProduct(d, d) / 2, nil
}

// look returns the error and its gradient, as training would get it.
func (l lesson) look(v []float64) (e float64, gradient []float64, err error) {
	in := l.with(v)
	out, err := in.quantize(l.x)
	if err != nil {
		return 0, nil, err
	}
	d := difference(out.value, l.x)
	gradients, err := in.gradient(l.x, d)
	return dotProduct(d, d) / 2, gradients[autodiff.Prefix+l.name].Float64s(), err
}
