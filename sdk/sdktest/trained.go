package sdktest

import (
	"maps"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// checkTrained computes initial values from ordinary and from unusual tensors, and
// quantizes with them.
func (q *quantizerRun) checkTrained(t *trial) {
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		if in.Init == nil {
			return
		}
		for _, sample := range startingSamples(x) {
			from := in.from(sample)
			for name, v := range inOrder(from.trained) {
				t.finite(in.at(), "initial "+name, v.Type.Shape, v.Floats)
			}
			t.run(func() {
				in.finite(sample, "value with the initial parameters", from.quantize(sample).value)
			})
		}
	})(t)
	q.shapesFor(t, "trained parameters", func(s *siteAnswer) []spec.Tensor { return s.Trained })
}

// constraintTolerance is how far, relative to the largest element, a constraint may move what is in
// its set: it may be computed by an iteration.
const constraintTolerance = 1e-4

// checkConstraints applies the constraints of trained parameters to their initial values, and twice
// to others.
func (q *quantizerRun) checkConstraints(t *trial, in *instance, x []float64) {
	for i, p := range in.Trained {
		if p.Constrain == nil {
			continue
		}
		name := spec.TrainedPrefix + p.Name
		constrain := func(v []float64) []float64 {
			out := in.run(p.Constrain, map[string]reference.Tensor{name: reference.Floats(v, p.Shape...)})[name]
			t.finite(in.at(), "constrained "+p.Name, p.Shape, out.Floats)
			return out.Floats
		}
		stays := func(what string, v []float64) {
			got := constrain(v)
			for j := range v {
				if !(math.Abs(got[j]-v[j]) <= constraintTolerance*largest(v)) {
					t.failf(in.at(), "%s: the constraint changes %s, element %d, from %.6g to %.6g", p.Name, what, j, v[j], got[j])
					return
				}
			}
		}
		t.run(func() {
			t.announce()
			start := in.trained[name].Floats
			stays("its initial value", start)
			moved := axpy(start, 0.3*max(largest(start), 1e-3), normal(uint64(41+i), len(start)))
			stays("what it has constrained before", constrain(moved))
		})
	}
}

// checkDevices compares every machine with the reference implementation, with the reference
// implementation's trained parameters and state.
func (q *quantizerRun) checkDevices(t *trial) {
	if len(q.machines) == 1 {
		t.skipf("no device")
		return
	}
	q.onOracle(func(_ *trial, in *instance, x []float64) {
		vjp, err := in.reverse()
		t.must(in.at(), err)
		e, others := in.given(x), q.machines[1:]
		t.compare(e, others, "", in.Program, in.inputs(x))
		t.compare(e, others, "gradient ", vjp, in.reverseInputs(vjp, x, normal(7, in.shape...)))
		beside := operand(otherRole(in.asked), in.shape[1])
		if in.Init != nil {
			t.compare(e, others, "initial ", in.Init, in.initialInputs(in.Init, x, beside))
			for _, p := range in.Trained {
				if name := spec.TrainedPrefix + p.Name; p.Constrain != nil {
					t.compare(e, others, "constrained ", p.Constrain, map[string]reference.Tensor{name: in.trained[name]})
				}
			}
		}
		if in.InitState != nil {
			t.compare(e, others, "initial ", in.InitState, in.initialInputs(in.InitState, x, beside))
		}
		if in.Next != nil {
			t.compare(e, others, "next ", in.Next, in.inputsOf(in.Next, x))
		}
	})(t)
}

// The gradient check compares the reverse pass of the surrogate with the surrogate
// itself, so it cannot know whether the surrogate is a good one: if none is given, both
// are zero, and a wrong sign is wrong on both sides. But the purpose of a trained
// parameter can be measured: it makes the error ½·Σ (Q(x) − x)² small, whose gradient
// with respect to Q(x) is Q(x) − x. From a parameter that is far off, a step against the
// gradient, not one along it, has to make the error smaller.

// offFactors and offShifts move a trained parameter away from its initial value: it is
// multiplied by a factor, or shifted by so many times the root mean square of x.
var (
	offFactors = []float64{8, 0.125}
	offShifts  = []float64{2, -2}
)

// lessonSteps are the lengths of the steps that are tried, as fractions of the parameter.
var lessonSteps = []float64{0.01, 0.1, 0.3, 0.6, 0.875, 1, 1.2, 2}

// wrongSignFraction is the fraction to which a step along the gradient must reduce the error,
// to prove that the sign is wrong. A single rounding does not halve the error by chance.
const wrongSignFraction = 0.5

// lesson is a trained parameter under test; the others keep their initial values.
type lesson struct {
	*instance
	x    []float64
	name string // of the input
}

func (q *quantizerRun) checkLearning(t *trial, in *instance, x []float64) {
	if len(x) < 64 || in.Init == nil {
		return // too few numbers to tell an error from chance
	}
	for _, p := range in.Trained {
		t.run(lesson{in, x, spec.TrainedPrefix + p.Name}.run)
	}
}

// run tries the parameter at its initial value, which may be the best already, and away from it.
func (l lesson) run() {
	l.t.announce()
	start := l.trained[l.name].Floats
	values := [][]float64{start}
	for _, c := range offFactors {
		values = append(values, scaled(c, start))
	}
	for _, c := range offShifts {
		values = append(values, axpy(start, c*rootMeanSquare(l.x), full(1, len(start))))
	}
	moves := false
	for i, v := range values {
		in := l.with(v)
		e, d := l.error(in)
		gradient := in.gradient(l.x, d)[autodiff.Prefix+l.name].Float64s()
		most := largest(gradient)
		if most == 0 || floats.HasNaN(gradient) || math.IsNaN(e) {
			continue
		}
		moves = true
		if i > 0 && !l.leads(v, scaled(1/most, gradient), e) {
			return
		}
	}
	if !moves {
		l.t.failf(l.at(), "the gradient of the error by %s is zero wherever that is: it is never trained", l.name)
	}
}

// leads takes steps of several lengths against the gradient and along it. It fails if
// only the latter make the error smaller.
func (l lesson) leads(v, gradient []float64, e float64) bool {
	best := map[float64]float64{}
	for _, sign := range []float64{-1, 1} {
		best[sign] = e
		for _, part := range lessonSteps {
			other, _ := l.error(l.with(axpy(v, sign*part*largest(v), gradient)))
			if other < best[sign] { // not NaN, either
				best[sign] = other
			}
		}
	}
	if best[-1] < e || best[1] > wrongSignFraction*e {
		return true
	}
	l.t.failf(l.at(), "from %s = %.4g, where the error is %.4g, no step against its gradient makes it smaller, and one along it leaves %.4g: the sign is wrong",
		l.name, v[0], e, best[1])
	return false
}

func (l lesson) with(v []float64) *instance {
	other := *l.instance
	other.trained = maps.Clone(l.trained)
	other.trained[l.name] = reference.Floats(v, l.trained[l.name].Type.Shape...)
	return &other
}

// error is ½·Σ d², with d = Q(x) − x.
func (l lesson) error(in *instance) (e float64, d []float64) {
	d = axpy(in.quantize(l.x).value, -1, l.x)
	return floats.Dot(d, d) / 2, d
}
