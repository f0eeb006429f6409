package figure

import (
	"math"

	"gonum.org/v1/plot/plotter"

	"github.com/cage-qat/cage/host/metrics"
)

// field picks one value of a record, nil where it was not measured.
type field func(r *metrics.Record) *metrics.Number

func trainLoss(r *metrics.Record) *metrics.Number { return &r.Loss }
func valLoss(r *metrics.Record) *metrics.Number   { return r.ValLoss }
func lambda(r *metrics.Record) *metrics.Number    { return &r.Lambda }

// relativeError is ‖x − Q(x)‖ / ‖x‖ in percent.
func relativeError(r *metrics.Record) *metrics.Number {
	if r.ErrorRel == nil {
		return nil
	}
	return metrics.Some(100 * math.Sqrt(float64(*r.ErrorRel)))
}

// absoluteError is ‖x − Q(x)‖.
func absoluteError(r *metrics.Record) *metrics.Number {
	if r.ErrorNorm2 == nil {
		return nil
	}
	return metrics.Some(math.Sqrt(float64(*r.ErrorNorm2)))
}

// largest is the magnitude from which on a value is as good as infinite: such
// values would leave no room for the others, and break the plotting arithmetic.
const largest = 1e30

// series returns a curve as pieces: where a value is not finite, the line breaks,
// so that a step that went wrong can be seen. Steps that were not measured are
// passed over.
func series(records []metrics.Record, f field) []plotter.XYs {
	var pieces []plotter.XYs
	var piece plotter.XYs
	seen := math.MinInt // the step of the last value
	for i := range records {
		y := f(&records[i])
		if y == nil || records[i].Step == seen {
			continue
		}
		seen = records[i].Step
		if v := float64(*y); math.Abs(v) < largest { // false for NaN
			piece = append(piece, plotter.XY{X: float64(records[i].Step), Y: v})
			continue
		}
		if len(piece) > 0 {
			pieces, piece = append(pieces, piece), nil
		}
	}
	if len(piece) > 0 {
		pieces = append(pieces, piece)
	}
	return pieces
}

// points is the number of points of a curve.
func points(pieces []plotter.XYs) int {
	n := 0
	for _, piece := range pieces {
		n += len(piece)
	}
	return n
}

// smoothFrom is the number of points from which on a curve is smoothed, and
// smoothShare the share of its points that each smoothed value averages.
const (
	smoothFrom  = 50
	smoothShare = 0.02
)

// smooth returns the curve with each value replaced by the mean of the values
// around it. The window is centred, so that the curve does not lag behind. It
// narrows towards the beginning of a piece, where a loss falls too steeply to be
// averaged over, and is cut off at the end, where a run is read off.
func smooth(pieces []plotter.XYs) []plotter.XYs {
	n := points(pieces)
	if n < smoothFrom {
		return pieces
	}
	reach := max(1, int(smoothShare*float64(n)/2))
	out := make([]plotter.XYs, len(pieces))
	for i, piece := range pieces {
		sums := make([]float64, len(piece)+1) // sums[j] is the sum of the first j values
		for j, p := range piece {
			sums[j+1] = sums[j] + p.Y
		}
		out[i] = make(plotter.XYs, len(piece))
		for j, p := range piece {
			r := min(reach, j)
			from, to := j-r, min(j+r+1, len(piece))
			out[i][j] = plotter.XY{X: p.X, Y: (sums[to] - sums[from]) / float64(to-from)}
		}
	}
	return out
}

// maxPoints is how many points a curve is drawn with at most: more than there are
// pixels, few enough for a small file.
const maxPoints = 2000

// thin returns a curve with at most about n points that looks the same: of each
// stretch of neighbouring points it keeps the lowest and the highest by y.
func thin[T any](piece []T, n int, y func(T) float64) []T {
	if len(piece) <= n {
		return piece
	}
	stretch := (2*len(piece) + n - 1) / n
	out := []T{piece[0]}
	for from := 1; from < len(piece)-1; from += stretch {
		to := min(from+stretch, len(piece)-1)
		low, high := from, from
		for i := from; i < to; i++ {
			if y(piece[i]) < y(piece[low]) {
				low = i
			}
			if y(piece[i]) > y(piece[high]) {
				high = i
			}
		}
		out = append(out, piece[min(low, high)])
		if low != high {
			out = append(out, piece[max(low, high)])
		}
	}
	return append(out, piece[len(piece)-1])
}

// ordinate is the y of a point.
func ordinate(p plotter.XY) float64 { return p.Y }
