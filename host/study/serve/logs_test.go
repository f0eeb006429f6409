package serve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCurve checks that a long curve keeps its peaks, its breaks and the means around its points.
func TestCurve(t *testing.T) {
	c := &curve{}
	const steps = 200_000
	for i := range steps {
		y := 3 + float64(i%2)
		switch i {
		case 77_777:
			y = 9
		case 120_000:
			y = math.Inf(1)
		}
		c.add(i, y)
		c.add(i, 100) // a second value at the step is ignored
	}
	peaks, breaks, last := 0, 0, -1
	points := c.points()
	for _, p := range points {
		if p.step <= last {
			t.Fatalf("step %d after step %d", p.step, last)
		}
		if last = p.step; p.value == 9 {
			peaks++
		} else if math.IsNaN(p.value) {
			breaks++
		}
	}
	if n := len(points); peaks != 1 || breaks != 1 || last != steps-1 || n > 2*maxPoints+c.stretch {
		t.Errorf("%d points to step %d, %d peaks, %d breaks", n, last, peaks, breaks)
	}
	smooth := c.smoothed(points)
	for i, y := range smooth[10:] {
		if math.IsNaN(y) != math.IsNaN(points[i+10].value) || math.Abs(y-3.5) > 0.05 {
			t.Fatalf("the mean around step %d is %v", points[i+10].step, y)
		}
	}
	short := &curve{}
	for i := range 49 {
		short.add(i, 1)
	}
	if short.smoothed(short.points()) != nil {
		t.Error("a short curve is smoothed")
	}
}

// TestLongCurve checks that all parts of a long curve that falls keep their share of the points,
// and that smoothed values do not reach far.
func TestLongCurve(t *testing.T) {
	for _, steps := range []int{2000, 3000, 10_000, 50_000, 200_000} {
		c := &curve{}
		random := rand.New(rand.NewPCG(1, 2))
		loss := func(step float64) float64 { return 2 + 8*math.Exp(-10*step/float64(steps)) }
		for i := range steps {
			c.add(i, loss(float64(i))+0.1*random.NormFloat64())
		}
		points := c.points()
		var tenths [10]int
		for _, p := range points {
			tenths[10*p.step/steps]++
		}
		if least := slices.Min(tenths[:]); least < len(points)/20 || least < 50 {
			t.Errorf("%d steps: points of each tenth of the run: %v", steps, tenths)
		}
		for i, y := range c.smoothed(points) {
			step := points[i].step
			if want := loss(float64(step)); step > steps/100 && math.Abs(y-want) > 0.15 {
				t.Fatalf("%d steps: %v around step %d, want %v", steps, y, step, want)
			}
		}
	}
}

// TestLogs checks that the most recently used runs are kept.
func TestLogs(t *testing.T) {
	var l logs
	first := l.get("0")
	for i := range maxLogs - 1 {
		l.get(string(rune('A' + i)))
	}
	if l.get("0") != first {
		t.Error("a run is forgotten too early")
	}
	l.get("another")
	if len(l.byRun) != maxLogs || len(l.order) != maxLogs || l.byRun["A"] != nil {
		t.Errorf("%d runs are kept", len(l.byRun))
	}
}
