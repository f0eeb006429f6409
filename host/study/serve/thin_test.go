package serve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Of a long curve with one peak, few points are kept, and the peak is one of them.
func Example() {
	c := newCurve(4)
	for step := 1; step <= 1000; step++ {
		y := 1 / float64(step)
		if step == 700 {
			y = 5
		}
		c.Add(step, y)
	}
	for _, p := range c.Points() {
		fmt.Printf("%d: %.4g\n", p.Step, p.Value)
	}
	// Output:
	// 1: 1
	// 255: 0.003922
	// 256: 0.003906
	// 511: 0.001957
	// 700: 5
	// 767: 0.001304
	// 768: 0.001302
	// 1000: 0.001
}

// TestShortCurve: a curve that fits is kept as it is.
func TestShortCurve(t *testing.T) {
	c := newCurve(100)
	for step := 0; step < 100; step++ {
		c.Add(step/2, float64(step)) // each step twice: the first value counts
	}
	points := c.Points()
	if len(points) != 50 {
		t.Fatalf("%d points of 50 values", len(points))
	}
	for i, p := range points {
		if want := (point{Step: i, Value: float64(2 * i)}); p != want {
			t.Errorf("point %d is %v, want %v", i, p, want)
		}
	}
	if points := newCurve(2).Points(); len(points) != 0 {
		t.Errorf("an empty curve has the points %v", points)
	}
}

// TestProperties: points are few and in order, each is a value of the curve, extremes and the
// newest value are among them, and where a value is not finite the curve breaks.
func TestProperties(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		most := 2 + random.IntN(20)
		c := newCurve(most)
		values := map[int]float64{}
		low, high, wild, step := math.Inf(1), math.Inf(-1), false, 0
		for range random.IntN(2000) {
			step += 1 + random.IntN(5)
			y := random.NormFloat64()
			if random.IntN(300) == 0 {
				y, wild = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[random.IntN(3)], true
			} else {
				low, high = min(low, y), max(high, y)
			}
			values[step] = y
			c.Add(step, y)
		}
		points := c.Points()
		if len(points) > 3*most+1 {
			t.Fatalf("seed %d: %d points of %d stretches", seed, len(points), most)
		}
		gotLow, gotHigh, gotWild := math.Inf(1), math.Inf(-1), false
		for i, p := range points {
			want, known := values[p.Step]
			finite := !math.IsNaN(want) && !math.IsInf(want, 0)
			if !known || finite && p.Value != want || i > 0 && p.Step <= points[i-1].Step {
				t.Fatalf("seed %d: point %d is %v, the curve has %v there", seed, i, p, want)
			}
			if !finite {
				gotWild = true
				continue
			}
			gotLow, gotHigh = min(gotLow, p.Value), max(gotHigh, p.Value)
		}
		if gotLow != low || gotHigh != high || gotWild != wild {
			t.Fatalf("seed %d: from %v to %v, %v; want %v to %v, %v", seed, gotLow, gotHigh, gotWild, low, high, wild)
		}
		if n := len(points); n > 0 && points[n-1].Step != step {
			t.Fatalf("seed %d: the curve ends at step %d, want %d", seed, points[n-1].Step, step)
		}
	}
}

// BenchmarkAdd is a number of a record.
func BenchmarkAdd(b *testing.B) {
	c := newCurve(600)
	for step := 0; b.Loop(); step++ {
		c.Add(step, 1/float64(step+1))
	}
}

// TestSmoothed: where each value has a stretch of its own, the smoothed values are means of the
// values around.
func TestSmoothed(t *testing.T) {
	c := newCurve(600)
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
	c := newCurve(100)
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
