package figure

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/train/metrics"
)

// field picks one value of a record, nil where it was not measured.
type field func(r *metrics.Record) *metrics.Number

func valLoss(r *metrics.Record) *metrics.Number { return r.ValLoss }

// trainLoss is what validation measures, too, whatever training minimizes.
func trainLoss(r *metrics.Record) *metrics.Number {
	if r.CrossEntropy != nil {
		return r.CrossEntropy
	}
	return &r.Loss
}

// mapNumber returns f of a number, nil for one that was not measured.
func mapNumber(n *metrics.Number, f func(float64) float64) *metrics.Number {
	if n == nil {
		return nil
	}
	return metrics.Some(f(float64(*n)))
}

// series returns a curve as pieces: where a value is not finite, the line breaks,
// so that a step that went wrong can be seen. Steps that were not measured are
// passed over.
func series(records []metrics.Record, f field) [][]Point {
	var list []Point
	seen := math.MinInt // the step of the last value
	for i := range records {
		if y := f(&records[i]); y != nil && records[i].Step != seen {
			seen = records[i].Step
			list = append(list, Point{X: float64(seen), Y: float64(*y)})
		}
	}
	return split(list, Axis{}, Axis{})
}

// split divides a list at points that have no place on the axes, which break a line.
func split(list []Point, x, y Axis) [][]Point {
	var pieces [][]Point
	broken := true
	for _, p := range list {
		if !x.drawable(p.X) || !y.drawable(p.Y) {
			broken = true
			continue
		}
		if broken {
			pieces, broken = append(pieces, nil), false
		}
		p.Minus, p.Plus = reach(p.Minus), reach(p.Plus)
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], p)
	}
	return pieces
}

func points(pieces [][]Point) int {
	n := 0
	for _, piece := range pieces {
		n += len(piece)
	}
	return n
}

// SmoothFrom is the number of points from which on a curve is smoothed, and
// SmoothShare the share of its points that each smoothed value averages.
const (
	SmoothFrom  = 50
	SmoothShare = 0.02
)

// smooth returns the curve with each value replaced by the mean of the values
// around it. The window is centred, so that the curve does not lag behind. It
// narrows towards the beginning of a piece, where a loss falls too steeply to be
// averaged over, and is cut off at the end, where a run is read off.
func smooth(pieces [][]Point) [][]Point {
	n := points(pieces)
	if n < SmoothFrom {
		return pieces
	}
	reach := max(1, int(SmoothShare*float64(n)/2))
	out := make([][]Point, len(pieces))
	for i, piece := range pieces {
		sums := make([]sum, len(piece)+1) // sums[j] is that of the first j values
		for j, p := range piece {
			sums[j+1] = sums[j].plus(p.Y)
		}
		out[i] = make([]Point, len(piece))
		for j, p := range piece {
			r := min(reach, j)
			from, to := j-r, min(j+r+1, len(piece))
			out[i][j] = Point{X: p.X, Y: ((sums[to].high - sums[from].high) + (sums[to].low - sums[from].low)) / float64(to-from)}
		}
	}
	return out
}

// sum is a sum with what was lost to rounding (Knuth's two-sum), so that after a value that
// is very large the differences of sums still hold those that are not.
type sum struct{ high, low float64 }

func (s sum) plus(x float64) sum {
	high := s.high + x
	part := high - s.high
	return sum{high, s.low + (s.high - (high - part)) + (x - part)}
}

// maxPoints is the most points that a curve is drawn with: more than there are pixels,
// few enough for a small file.
const maxPoints = 2000

// Thin returns at most about n points of a curve that look the same when drawn: for each
// stretch of neighbouring points, the lowest and the highest by their value y, and the first that
// is NaN, which breaks the line; and both ends.
func Thin[P any](points []P, n int, y func(P) float64) []P {
	if len(points) <= n {
		return points
	}
	stretch := (2*len(points) + n - 1) / n
	out := []P{points[0]}
	for from := 1; from < len(points)-1; from += stretch {
		low, high, broken := -1, -1, -1
		for i := from; i < min(from+stretch, len(points)-1); i++ {
			switch v := y(points[i]); {
			case math.IsNaN(v):
				if broken < 0 {
					broken = i
				}
			case low < 0:
				low, high = i, i
			case v < y(points[low]):
				low = i
			case v > y(points[high]):
				high = i
			}
		}
		kept := []int{low, high, broken}
		slices.Sort(kept)
		for _, i := range slices.Compact(kept) {
			if i >= 0 {
				out = append(out, points[i])
			}
		}
	}
	return append(out, points[len(points)-1])
}

// value is that by which points are thinned.
func (p Point) value() float64 { return p.Y }
