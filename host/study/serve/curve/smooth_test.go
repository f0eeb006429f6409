package curve_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/study/serve/curve"
)

// TestSmoothed: where each value has a stretch of its own, the smoothed values are means of the
// values around.
func TestSmoothed(t *testing.T) {
	c := curve.New(600)
	for step := 1; step <= 49; step++ {
		c.Add(step, 1)
	}
	if got := c.Smoothed(); got != nil {
		t.Errorf("49 values are smoothed: %v", got)
	}
	for step := 50; step <= 300; step++ { // a window of 3 to both sides
		y := float64(step % 7)
		if step == 200 {
			y = math.NaN()
		}
		c.Add(step, y)
	}
	got, points := c.Smoothed(), c.Points()
	if len(got) != len(points) {
		t.Fatalf("%d values for %d points", len(got), len(points))
	}
	for i, p := range points {
		want := 3.0 // the mean of seven in a row
		switch {
		case p.Step < 47:
			want = 1
		case p.Step == 200:
			want = math.NaN()
		case p.Step < 53 || p.Step > 196 && p.Step < 204 || p.Step > 297:
			continue
		}
		if d := got[i] - want; !(math.Abs(d) < 1e-12) && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
			t.Errorf("step %d: %g, want %g", p.Step, got[i], want)
		}
	}
}

// TestSmoothedLong: of a long curve the mean stays that of all values, and is not drawn to
// the lowest and highest that are kept of each stretch.
func TestSmoothedLong(t *testing.T) {
	c := curve.New(100)
	for step := range 100_000 {
		y := 1.0
		if step%50 == 0 {
			y = 51 // rare peaks: the mean is 2, the middle of the extremes 26
		}
		c.Add(step, y)
	}
	for i, y := range c.Smoothed() {
		if math.Abs(y-2) > 0.1 {
			t.Fatalf("value %d is %g, want 2", i, y)
		}
	}
}
