package sdktest

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
)

// landscape is a function of n numbers that is to be minimised: where to start, and the
// value and the gradient at a point.
type landscape func(n int) (start []float64, at func(x []float64) (value float64, gradient []float64))

// parabola is ½·Σ a·(x − c)² with a from 0.1 to 10. It starts at x = 0.
func parabola(n int) ([]float64, func([]float64) (float64, []float64)) {
	c, a := normal(90, n), make([]float64, n)
	for i := range a {
		a[i] = math.Pow(10, 2*float64(i)/float64(max(n-1, 1))-1)
	}
	return make([]float64, n), func(x []float64) (value float64, gradient []float64) {
		gradient = make([]float64, n)
		for i, v := range x {
			value += 0.5 * a[i] * (v - c[i]) * (v - c[i])
			gradient[i] = a[i] * (v - c[i])
		}
		return value, gradient
	}
}

// rosenbrock is Σ 100·(y − x²)² + (1 − x)² over pairs (x, y), starting at the customary
// (−1.2, 1) (Rosenbrock 1960). If n is odd, the last element has only the term (1 − x)².
func rosenbrock(n int) ([]float64, func([]float64) (float64, []float64)) {
	start := make([]float64, n)
	for i := range start {
		start[i] = [2]float64{-1.2, 1}[i%2]
	}
	return start, func(x []float64) (value float64, gradient []float64) {
		gradient = make([]float64, n)
		for i := 0; i < n; i += 2 {
			value += (1 - x[i]) * (1 - x[i])
			gradient[i] = 2 * (x[i] - 1)
			if i+1 < n {
				d := x[i+1] - x[i]*x[i]
				value += 100 * d * d
				gradient[i] -= 400 * x[i] * d
				gradient[i+1] = 200 * d
			}
		}
		return value, gradient
	}
}

// rates are tried in this order; each falls linearly to zero over a descent.
var rates = []float64{0.1, 0.03, 0.01, 0.3, 0.003, 0.001, 1, 3e-4, 1e-4}

// descent runs an optimizer down a landscape and returns the last value as a fraction of
// the first. The last value is at the point that the model is evaluated with.
func (s *tensorAnswer) descent(t *trial, l landscape, steps int, rate float64) float64 {
	x, at := l(s.size())
	first, g := at(x)
	value, r := first, s.trainFrom(t, Oracle{}, x)
	r.conditions.steps = float64(steps)
	r.slope = func(x []float64) []float64 {
		_, g := at(x)
		return g
	}
	for i := range steps {
		if floats.HasNaN(g) || value > 1e6*first {
			return math.Inf(1) // this rate is too large
		}
		r.schedule, r.loss = rate*(1-float64(i)/float64(steps)), value
		u, err := r.step(x, g)
		if err != nil {
			t.must(s.example, fmt.Errorf("rate %v: %w", rate, err))
		}
		x = axpy(x, -r.rate, u)
		value, g = at(x)
	}
	result, err := r.evaluated(x)
	t.must(s.example, err)
	value, _ = at(result)
	return value / first
}

// checkDescent checks that the optimizer comes down to the goal, a fraction of the first value,
// with some rate. It tries every kind of tensor that is accepted, with the default settings.
func (o *optimizerRun) checkDescent(t *trial, l landscape, steps int, goal float64) {
	v := o.space.singles[0]
	if v.claims(sdk.ClaimNoDescent) {
		t.skipf("no_descent is claimed")
		return
	}
	part, claimed := v.about.Claimed(sdk.ClaimDescent, v.values)
	wanted := "; if it need not come down, " + claim(sdk.ClaimNoDescent)
	if claimed {
		goal, wanted = part.(float64), ", as descent claims"
	}
	worst, at := 0.0, 0.0
	o.byDefault(func(_ *trial, s *tensorAnswer) {
		t.announce()
		best, bestRate := math.Inf(1), 0.0
		for _, rate := range rates {
			if got := s.descent(t, l, steps, rate); got < best {
				best, bestRate = got, rate
			}
			if best <= goal {
				break
			}
		}
		if !(best <= goal) && (claimed || len(s.settings) == 0) { // settings that a person chose may need other rates
			t.failf(s.example, "after %d steps the value is %.3g times the first at best, with rate %v; want %v%s", steps, best, bestRate, goal, wanted)
		}
		worst, at = max(worst, best), bestRate
	})(t)
	if t.skipUntried("no tensor is accepted with the settings given"); !t.skipped {
		t.notef("%.2g of the first value after %d steps, with rate %v", worst, steps, at)
	}
}
