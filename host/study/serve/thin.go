package serve

import (
	"math"
	"slices"
)

// curve is a curve of any length in bounded memory: for each stretch of steps its lowest and
// its highest value, so that no peak is lost, and the newest value. When there are too many
// stretches, they are made twice as long. Points are added at the end.
type curve struct {
	most  int
	shift uint // a stretch has 2^shift steps
	cells []stretch

	count int     // of all values
	step  int     // of the newest
	value float64 // the newest
}

// stretch is a stretch of steps. Where wild is set, a value was not finite.
type stretch struct {
	key               int // step >> shift
	some, wild        bool
	lowStep, highStep int
	low, high         float64
	wildStep          int
	sum               float64 // of its finite values
	values            int     // their number
}

func newCurve(most int) *curve { return &curve{most: max(2, most)} }

// Add appends the value at a step. Steps must be in order. If there are several values at
// one step, the first counts.
func (c *curve) Add(step int, y float64) {
	if c.count > 0 && step <= c.step {
		return
	}
	c.count, c.step, c.value = c.count+1, step, y
	key := step >> c.shift
	if n := len(c.cells); n == 0 || c.cells[n-1].key != key {
		c.cells = append(c.cells, stretch{key: key})
	}
	c.cells[len(c.cells)-1].add(step, y)
	for len(c.cells) > c.most {
		c.halve()
	}
}

func (c *stretch) add(step int, y float64) {
	if math.IsNaN(y) || math.IsInf(y, 0) {
		c.wild, c.wildStep = true, step
		return
	}
	c.sum, c.values = c.sum+y, c.values+1
	switch {
	case !c.some:
		c.some = true
		c.low, c.lowStep, c.high, c.highStep = y, step, y, step
	case y < c.low:
		c.low, c.lowStep = y, step
	case y > c.high:
		c.high, c.highStep = y, step
	}
}

func (c *curve) halve() {
	c.shift++
	out := c.cells[:0]
	for _, next := range c.cells {
		next.key >>= 1
		if n := len(out); n > 0 && out[n-1].key == next.key {
			out[n-1].merge(next)
			continue
		}
		out = append(out, next)
	}
	c.cells = out
}

func (c *stretch) merge(d stretch) {
	if d.some && (!c.some || d.low < c.low) {
		c.low, c.lowStep = d.low, d.lowStep
	}
	if d.some && (!c.some || d.high > c.high) {
		c.high, c.highStep = d.high, d.highStep
	}
	if d.wild {
		c.wild, c.wildStep = true, d.wildStep
	}
	c.some = c.some || d.some
	c.sum, c.values = c.sum+d.sum, c.values+d.values
}

// point is a point of a curve. A NaN, which stands for a value that was not finite,
// breaks the curve.
type point struct {
	Step  int
	Value float64
}

// Points returns at most 3·most + 1 points in the order of their steps: for each stretch
// the lowest and the highest, and a NaN if a value was not finite; and the newest. Every
// finite value of the curve lies between the lowest and the highest of its stretch.
func (c *curve) Points() []point {
	out := make([]point, 0, 2*len(c.cells)+1)
	for _, s := range c.cells {
		from := len(out)
		if s.some {
			out = append(out, point{s.lowStep, s.low})
			if s.highStep != s.lowStep {
				out = append(out, point{s.highStep, s.high})
			}
		}
		if s.wild {
			out = append(out, point{s.wildStep, math.NaN()})
		}
		slices.SortStableFunc(out[from:], func(a, b point) int { return a.Step - b.Step })
	}
	if n := len(out); n > 0 && out[n-1].Step < c.step {
		out = append(out, point{c.step, c.value})
	}
	return out
}

// smoothFrom is the number of values from which on a curve is smoothed, and smoothShare the
// share of its stretches that each smoothed value is the mean of, as in the pictures of runs
// (host/study/figure).
const (
	smoothFrom  = 50
	smoothShare = 0.02
)

// Smoothed returns a value for each of [curve.Points]: the mean of all values in the stretches
// around it, or NaN where the curve breaks. The window is centred. It is narrower at the beginning,
// where a loss falls too steeply to be averaged over, and cut off at the end. For a short curve it
// returns nothing.
func (c *curve) Smoothed() []float64 {
	if c.count < smoothFrom {
		return nil
	}
	n := len(c.cells)
	reach := max(1, int(smoothShare*float64(n)/2))
	out := []float64{}
	stretch := 0
	for _, p := range c.Points() {
		for stretch < n-1 && c.cells[stretch].key < p.Step>>c.shift {
			stretch++
		}
		r := min(reach, stretch)
		from, to := stretch-r, min(stretch+r+1, n)
		mean := math.NaN()
		if !math.IsNaN(p.Value) {
			sum, values := 0.0, 0
			for _, s := range c.cells[from:to] {
				sum, values = sum+s.sum, values+s.values
			}
			mean = sum / float64(values)
		}
		out = append(out, mean)
	}
	return out
}
