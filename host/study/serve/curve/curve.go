// Package curve keeps a curve of any length in bounded memory: for each stretch of steps
// its lowest and its highest value, so that no peak is lost, and in addition the newest
// value. When there are too many stretches, they are made twice as long.
package curve

import (
	"math"
	"slices"
)

// Curve is a curve to which points are added at the end. The zero value is not usable;
// see [New].
type Curve struct {
	most  int
	shift uint // a stretch has 2^shift steps
	cells []cell

	count int     // of all values
	step  int     // of the newest
	value float64 // the newest
}

// cell is a stretch of steps. Where wild is set, a value was not finite.
type cell struct {
	key               int // step >> shift
	some, wild        bool
	lowStep, highStep int
	low, high         float64
	wildStep          int
	sum               float64 // of its finite values
	values            int     // their number
}

// New makes a curve with at most the given number of stretches, and at least 2.
func New(most int) *Curve { return &Curve{most: max(2, most)} }

// Add appends the value at a step. Steps must be in order. If there are several values at
// one step, the first counts.
func (c *Curve) Add(step int, y float64) {
	if c.count > 0 && step <= c.step {
		return
	}
	c.count, c.step, c.value = c.count+1, step, y
	key := step >> c.shift
	if n := len(c.cells); n == 0 || c.cells[n-1].key != key {
		c.cells = append(c.cells, cell{key: key})
	}
	c.cells[len(c.cells)-1].add(step, y)
	for len(c.cells) > c.most {
		c.halve()
	}
}

func (c *cell) add(step int, y float64) {
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

// halve makes the stretches twice as long.
func (c *Curve) halve() {
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

func (c *cell) merge(d cell) {
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

// Point is a point of a curve. A NaN, which stands for a value that was not finite,
// breaks the curve.
type Point struct {
	Step  int
	Value float64
}

// Points returns at most 3·most + 1 points in the order of their steps: for each stretch
// the lowest and the highest, and a NaN if a value was not finite; and the newest. Every
// finite value of the curve lies between the lowest and the highest of its stretch.
func (c *Curve) Points() []Point {
	out := make([]Point, 0, 2*len(c.cells)+1)
	for _, s := range c.cells {
		from := len(out)
		if s.some {
			out = append(out, Point{s.lowStep, s.low})
			if s.highStep != s.lowStep {
				out = append(out, Point{s.highStep, s.high})
			}
		}
		if s.wild {
			out = append(out, Point{s.wildStep, math.NaN()})
		}
		slices.SortStableFunc(out[from:], func(a, b Point) int { return a.Step - b.Step })
	}
	if n := len(out); n > 0 && out[n-1].Step < c.step {
		out = append(out, Point{c.step, c.value})
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

// Smoothed returns a value for each of [Curve.Points]: the mean of all values in the stretches around it, or NaN where
// the curve breaks. The window is centred. It is narrower at the beginning, where a loss falls too steeply to be
// averaged over, and cut off at the end. For a short curve it returns nothing.
func (c *Curve) Smoothed() []float64 {
	if c.count < smoothFrom {
		return nil
	}
	n := len(c.cells)
	reach := max(1, int(smoothShare*float64(n)/2))
	out := []float64{}
	cell := 0
	for _, p := range c.Points() {
		for cell < n-1 && c.cells[cell].key < p.Step>>c.shift {
			cell++
		}
		r := min(reach, cell)
		from, to := cell-r, min(cell+r+1, n)
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
