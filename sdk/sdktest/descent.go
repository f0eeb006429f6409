package sdktest

import (
	"fmt"
	"math"
)

// landscape is a function to be minimised, over the elements of a tensor.
type landscape struct {
	start    []float64
	value    func(x []float64) float64
	gradient func(x []float64) []float64
}

// parabola is ½·Σ a·(x − c)² with a from 0.1 to 10, from x = 0.
func parabola(n int) landscape {
	c, a := normal(90, n), make([]float64, n)
	for i := range a {
		a[i] = math.Pow(10, 2*float64(i)/float64(max(n-1, 1))-1)
	}
	return landscape{
		start: make([]float64, n),
		value: func(x []float64) float64 {
			sum := 0.0
			for i, v := range x {
				sum += 0.5 * a[i] * (v - c[i]) * (v - c[i])
			}
			return sum
		},
		gradient: func(x []float64) []float64 {
			g := make([]float64, n)
			for i, v := range x {
				g[i] = a[i] * (v - c[i])
			}
			return g
		},
	}
}

// rosenbrock is Σ 100·(y − x²)² + (1 − x)² over pairs (x, y), from the customary
// (−1.2, 1) (Rosenbrock 1960); an odd last element has the square alone.
func rosenbrock(n int) landscape {
	start := make([]float64, n)
	for i := range start {
		start[i] = [2]float64{-1.2, 1}[i%2]
	}
	return landscape{
		start: start,
		value: func(x []float64) float64 {
			sum := 0.0
			for i := 0; i < n; i += 2 {
				sum += (1 - x[i]) * (1 - x[i])
				if i+1 < n {
					d := x[i+1] - x[i]*x[i]
					sum += 100 * d * d
				}
			}
			return sum
		},
		gradient: func(x []float64) []float64 {
			g := make([]float64, n)
			for i := 0; i < n; i += 2 {
				g[i] = 2 * (x[i] - 1)
				if i+1 < n {
					d := x[i+1] - x[i]*x[i]
					g[i] -= 400 * x[i] * d
					g[i+1] = 200 * d
				}
			}
			return g
		},
	}
}

// rates are tried in this order; each falls linearly to zero over a descent.
var rates = []float64{0.1, 0.03, 0.01, 0.3, 0.003, 0.001, 1, 3e-4, 1e-4}

// descent runs an optimizer down a landscape and returns the last value in parts of
// the first.
func (s *tensor) descent(l landscape, steps int, rate float64) (float64, error) {
	x := l.start
	p, err := s.start(oracle{}, x)
	if err != nil {
		return 0, err
	}
	first := l.value(x)
	for i := range steps {
		g := l.gradient(x)
		if math.IsNaN(dotProduct(g, g)) || l.value(x) > 1e6*first {
			return math.Inf(1), nil // this rate is too large
		}
		u, err := p.step(x, g)
		if err != nil {
			return 0, err
		}
		alpha := rate * (1 - float64(i)/float64(steps))
		next := make([]float64, len(x))
		for j, v := range x {
			next[j] = v - alpha*u[j]
		}
		x = next
	}
	return l.value(x) / first, nil
}

// bestDescent tries rates until one reaches the goal.
func (s *tensor) bestDescent(l landscape, steps int, goal float64) (best, at float64, err error) {
	best = math.Inf(1)
	for _, rate := range rates {
		got, err := s.descent(l, steps, rate)
		if err != nil {
			return best, at, fmt.Errorf("rate %v: %w", rate, err)
		}
		if got < best {
			best, at = got, rate
		}
		if best <= goal {
			break
		}
	}
	return best, at, nil
}

// checkDescent asks every accepted kind of tensor, with the default settings, to
// come down to the goal, a part of the first value, with some rate.
func (o *optimizerRun) checkDescent(t *trial, make func(n int) landscape, steps int, goal float64) {
	if o.traits.NoDescent {
		t.skipf("no descent is claimed")
		return
	}
	claimed := o.traits.Descent > 0
	if claimed {
		goal = o.traits.Descent
	}
	worst, at := 0.0, 0.0
	for _, k := range tensorKinds {
		s, err := o.ask(o.space.singles[0], k.role, k.shape...)
		if err != nil || !s.Accepts {
			continue
		}
		t.tried()
		best, rate, err := s.bestDescent(make(s.size()), steps, goal)
		if !t.ok(s.place, err) {
			continue
		}
		if !(best <= goal) && (claimed || len(s.settings) == 0) { // what a person chose may need other rates
			t.failf(s.place, "after %d steps the value is %.3g times the first at best, with rate %v; want %v", steps, best, rate, goal)
		}
		worst, at = max(worst, best), rate
	}
	t.notef("%.2g of the first value after %d steps, with rate %v", worst, steps, at)
}

func (o *optimizerRun) checkParabola(t *trial) { o.checkDescent(t, parabola, 300, 0.05) }

// The valley begins at 0.17 times the first value.
func (o *optimizerRun) checkRosenbrock(t *trial) { o.checkDescent(t, rosenbrock, 2000, 0.15) }
