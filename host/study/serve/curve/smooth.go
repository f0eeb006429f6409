package curve

import "math"

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
			mean = meanOf(c.cells[from:to])
		}
		out = append(out, mean)
	}
	return out
}

// meanOf is the mean of all values in some stretches, NaN if there are none.
func meanOf(list []cell) float64 {
	sum, values := 0.0, 0
	for _, s := range list {
		sum, values = sum+s.sum, values+s.values
	}
	return sum / float64(values)
}
