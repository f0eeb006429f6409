package figure

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
)

func curve(n int, f func(i int) float64) []Point {
	out := make([]Point, n)
	for i := range out {
		out[i] = Point{X: float64(i), Y: f(i)}
	}
	return out
}

func TestSeriesBreaksWhereAValueIsNotFinite(t *testing.T) {
	var records []metrics.Record
	for i, v := range []float64{1, 2, math.NaN(), 3, math.Inf(1), math.Inf(-1), 1e40, 4, 5} {
		records = append(records, metrics.Record{Step: i, Loss: metrics.Number(v)})
	}
	records[8].ValLoss = metrics.Some(6)
	pieces := series(records, trainLoss)
	if len(pieces) != 3 || len(pieces[0]) != 2 || len(pieces[1]) != 1 || len(pieces[2]) != 2 ||
		pieces[2][0] != (Point{X: 7, Y: 4}) {
		t.Errorf("pieces %v", pieces)
	}
	if pieces := series(records, valLoss); points(pieces) != 1 || pieces[0][0] != (Point{X: 8, Y: 6}) {
		t.Errorf("validation %v", pieces)
	}
}

// TestSeriesWithTeacher checks that recorded cross-entropies are drawn as the training curve.
func TestSeriesWithTeacher(t *testing.T) {
	records := []metrics.Record{{Step: 1, Loss: 0.1, Divergence: metrics.Some(0.1),
		CrossEntropy: metrics.Some(3)}, {Step: 2, Loss: 2}}
	if pieces := series(records, trainLoss); points(pieces) != 2 || pieces[0][0].Y != 3 ||
		pieces[0][1].Y != 2 {
		t.Errorf("pieces %v", pieces)
	}
}

func TestSmooth(t *testing.T) {
	short := [][]Point{curve(SmoothFrom-1, func(i int) float64 { return float64(i % 2) })}
	if got := smooth(short); &got[0][0] != &short[0][0] {
		t.Error("a short curve is smoothed")
	}
	line := curve(500, func(i int) float64 { return 3 - 0.01*float64(i) })
	for i, p := range smooth([][]Point{line})[0][:490] {
		if math.Abs(p.Y-line[i].Y) > 1e-9 || p.X != line[i].X {
			t.Fatalf("a straight line is bent at %d: %v, want %v", i, p, line[i])
		}
	}
	noise := curve(1000, func(i int) float64 { return float64(i % 2) })
	for i, p := range smooth([][]Point{noise})[0][20:] {
		if math.Abs(p.Y-0.5) > 0.06 {
			t.Fatalf("noise of amplitude 0.5 is left at %v at point %d", p.Y, i+20)
		}
	}
	pieces := smooth([][]Point{curve(60, func(int) float64 { return 1 }),
		curve(60, func(int) float64 { return 2 })})
	if pieces[0][59].Y != 1 || pieces[1][0].Y != 2 {
		t.Errorf("a break is smoothed over: %v, %v", pieces[0][59], pieces[1][0])
	}
}

func TestThinKeepsTheExtremes(t *testing.T) {
	long := curve(100_003, func(i int) float64 { return math.Sin(float64(i) / 500) })
	long[77_777].Y, long[5].Y = 9, -9
	got := Thin(long, maxPoints, valueOf)
	if len(got) > maxPoints+2 {
		t.Errorf("%d points are left", len(got))
	}
	if got[0] != long[0] || got[len(got)-1] != long[len(long)-1] {
		t.Error("an end is missing")
	}
	seen := map[Point]bool{}
	for i, p := range got {
		seen[p] = true
		if i > 0 && p.X <= got[i-1].X {
			t.Fatalf("points are out of order at %d", i)
		}
	}
	if !seen[long[77_777]] || !seen[long[5]] {
		t.Error("a spike is lost")
	}
	if short := curve(10, func(i int) float64 { return 1 }); len(
		Thin(short, maxPoints, valueOf)) != 10 {
		t.Error("a short curve is thinned")
	}
}

// TestSmoothPeak checks that one very large value affects only its neighbours.
func TestSmoothPeak(t *testing.T) {
	var piece []Point
	for i := range 400 {
		y := 3.0
		if i == 100 {
			y = 1e17
		}
		piece = append(piece, Point{X: float64(i), Y: y})
	}
	for _, p := range smooth([][]Point{piece})[0][200:] {
		if math.Abs(p.Y-3) > 1e-9 {
			t.Fatalf("step %v: %v, want 3", p.X, p.Y)
		}
	}
}

// TestThinKeepsBreaks checks that thinning keeps a NaN, which breaks the line, and a peak next to
// it.
func TestThinKeepsBreaks(t *testing.T) {
	const places = 100
	for broken := 2; broken < 998; broken++ {
		long := curve(1000, func(i int) float64 { return math.Sin(float64(i)) })
		long[broken].Y, long[broken+1].Y = math.NaN(), 5
		breaks, tops := 0, 0
		for _, p := range Thin(long, places, valueOf) {
			if math.IsNaN(p.Y) {
				breaks++
			}
			if p.Y == 5 {
				tops++
			}
		}
		if breaks != 1 || tops != 1 {
			t.Errorf("of a break at %d and the top behind it %d and %d are left", broken, breaks, tops)
		}
	}
}

func valueOf(p Point) float64 { return p.Y }
