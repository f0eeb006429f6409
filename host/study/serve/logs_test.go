package serve

import (
	"math"
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
	for _, p := range c.points {
		if p.step <= last {
			t.Fatalf("step %d after step %d", p.step, last)
		}
		if last = p.step; p.value == 9 {
			peaks++
		} else if math.IsNaN(p.value) {
			breaks++
		}
	}
	if n := len(c.points); peaks != 1 || breaks != 1 || last != steps-1 || n > 2*maxPoints {
		t.Errorf("%d points to step %d, %d peaks, %d breaks", n, last, peaks, breaks)
	}
	smooth := c.smoothed()
	for i, y := range smooth[10:] {
		if math.IsNaN(y) != math.IsNaN(c.points[i+10].value) || math.Abs(y-3.5) > 0.05 {
			t.Fatalf("the mean around step %d is %v", c.points[i+10].step, y)
		}
	}
	short := &curve{}
	for i := range 49 {
		short.add(i, 1)
	}
	if short.smoothed() != nil {
		t.Error("a short curve is smoothed")
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
