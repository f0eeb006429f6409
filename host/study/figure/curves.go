package figure

import (
	"math"
	"slices"

	"gonum.org/v1/plot/vg"

	"github.com/cage-qat/cage/host/train/metrics"
)

// Run is a run to draw. Its records are ordered by step.
type Run struct {
	Name    string // name in the legend
	Records []metrics.Record
}

// Curves shows metrics of runs against the step, in panels for the loss (training as a smoothed
// line over a faint raw one, validation dashed), the quantization error and λ_t. A panel is omitted
// if no run has a value for it.
type Curves struct{ Runs []Run }

func (c *Curves) compose(width vg.Length) *composition {
	relative := c.chart("‖x − Q(x)‖ / ‖x‖  (%)", func(r *metrics.Record) *metrics.Number {
		return mapNumber(r.ErrorRel, func(x float64) float64 { return 100 * math.Sqrt(x) })
	})
	absolute := c.chart("‖x − Q(x)‖", func(r *metrics.Record) *metrics.Number {
		return mapNumber(r.ErrorNorm2, math.Sqrt)
	})
	lambda := c.chart("CAGE λ", func(r *metrics.Record) *metrics.Number { return r.Lambda })
	if !c.any(func(r metrics.Record) bool { return r.Lambda != nil && *r.Lambda != 0 }) {
		lambda.Series = nil // CAGE was off
	}
	if x, _ := relative.spans(); !x.empty() {
		absolute.Series = nil
	}
	var charts []*Chart
	var heights []vg.Length
	x := newSpan()
	all := []*Chart{c.loss(), relative, absolute, lambda}
	for i, height := range []vg.Length{2.6 * vg.Inch, 1.6 * vg.Inch, 1.6 * vg.Inch, 1.1 * vg.Inch} {
		if s, _ := all[i].spans(); !s.empty() {
			charts, heights = append(charts, all[i]), append(heights, height)
			x.low, x.high = min(x.low, s.low), max(x.high, s.high)
		}
	}
	if len(charts) == 0 {
		return nil
	}
	if x.low <= 0.05*x.high {
		x.low = 0 // the beginning of the run is in the figure
	}
	if x.low == x.high {
		x.low, x.high = x.low-1, x.high+1
	}
	out := &composition{}
	last := len(charts) - 1
	charts[last].X.Label = "step"
	for i, chart := range charts {
		chart.X.Min, chart.X.Max = x.low, x.high
		part := chart.compose(width)
		p := part.panels[0].plot
		p.X.Tick.Marker = ticks{unlabelled: i < last}
		out.panels = append(out.panels, panel{p, heights[i]})
		out.legend = append(out.legend, part.legend...)
	}
	return out
}

func (c *Curves) any(is func(metrics.Record) bool) bool {
	return slices.ContainsFunc(c.Runs, func(r Run) bool { return slices.ContainsFunc(r.Records, is) })
}

func (c *Curves) chart(label string, f field) *Chart {
	out := &Chart{Y: Axis{Label: label}}
	for i, run := range slices.Backward(c.Runs) { // the first run is drawn on top
		line := Series{Points: joined(series(run.Records, f)), Line: Solid, Color: i + 1}
		out.Series = append(out.Series, line)
	}
	return out
}

// loss returns the chart of the losses. Its legend entries are series without points.
func (c *Curves) loss() *Chart {
	const maxMarks = 40                   // more could not be distinguished
	out := &Chart{Y: Axis{Label: "loss"}} // for a problem without data
	if c.any(func(r metrics.Record) bool { return r.Tokens > 0 }) {
		out.Y.Label = "loss (nats per token)"
	}
	single := len(c.Runs) == 1
	smoothed, validated := false, false
	var names []Series
	for i, run := range slices.Backward(c.Runs) {
		train, validation := series(run.Records, trainLoss), series(run.Records, valLoss)
		raw := Series{Points: joined(train), Line: Solid, Color: i + 1, Faint: true}
		if points(train) >= SmoothFrom {
			smoothed = true
			if single { // several raw curves would hide each other
				out.Series = append(out.Series, raw)
			}
		}
		line := Series{Points: joined(smooth(train)), Line: Solid, Color: i + 1}
		dashed := Series{Points: joined(validation), Line: Dashed, Color: i + 1}
		dashed.Marks = points(validation) <= maxMarks
		if single { // the colour need not identify the run
			dashed.Color = 2
		}
		out.Series = append(out.Series, line, dashed)
		validated = validated || len(validation) > 0
		if !single && points(train)+points(validation) > 0 {
			names = append(names, Series{Name: run.Name, Line: Solid, Color: i + 1})
		}
	}
	c.fitLoss(out)
	slices.Reverse(names)
	if validated {
		train := Series{Name: "training", Line: Solid, Color: 1}
		validation := Series{Name: "validation", Line: Dashed, Marks: true, Color: 2}
		if smoothed {
			train.Name = "training, smoothed"
			if single {
				train.Name += " (faint: as recorded)"
			}
		}
		if !single {
			train.Color, validation.Color = Colors, Colors // black
		}
		names = append(names, train, validation)
	}
	out.Series = append(out.Series, names...)
	return out
}

// fitLoss cuts off the steep descent in the first steps of long runs, because it would hide the
// relevant differences: the vertical axis ends at the largest value of the smoothed curves and the
// validation after a fraction of the steps, which is larger if runs are compared.
func (c *Curves) fitLoss(chart *Chart) {
	share := 0.01
	if len(c.Runs) > 1 {
		share = 0.05
	}
	top := math.Inf(-1)
	for _, run := range c.Runs {
		train := series(run.Records, trainLoss)
		from := math.Inf(-1) // first step whose values count
		if all := slices.Concat(train...); len(all) > 0 {
			n := len(all)
			if n < SmoothFrom || all[0].X > 0.05*all[n-1].X {
				return // a short run, or the end of one: the axis shows all of it
			}
			from = all[min(int(math.Ceil(share*float64(n))), n-1)].X
		}
		for _, pt := range slices.Concat(append(smooth(train), series(run.Records, valLoss)...)...) {
			if pt.X >= from {
				top = max(top, pt.Y)
			}
		}
	}
	if _, y := chart.spans(); top > y.low {
		high := min(y.high, top+0.05*(top-y.low))
		chart.Y.Min, chart.Y.Max = y.low-0.03*(high-y.low), high
	}
}

// field returns a value of a record, or nil if it was not measured.
type field func(r *metrics.Record) *metrics.Number

func valLoss(r *metrics.Record) *metrics.Number { return r.ValLoss }

// trainLoss returns the cross-entropy, like validation, whatever loss the training minimizes.
func trainLoss(r *metrics.Record) *metrics.Number {
	if r.CrossEntropy != nil {
		return r.CrossEntropy
	}
	return &r.Loss
}

func mapNumber(n *metrics.Number, f func(float64) float64) *metrics.Number {
	if n == nil {
		return nil
	}
	return metrics.Some(f(float64(*n)))
}

// series returns a curve in pieces: the line breaks where a value is not finite, so that a failed
// step is visible. Steps without a measurement are skipped.
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

// split divides a list at the points that cannot be drawn on the axes; there the line breaks.
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

func joined(pieces [][]Point) (list []Point) {
	for i, piece := range pieces {
		if i > 0 {
			list = append(list, Point{X: piece[0].X, Y: math.NaN()})
		}
		list = append(list, piece...)
	}
	return list
}

func points(pieces [][]Point) (n int) {
	for _, piece := range pieces {
		n += len(piece)
	}
	return n
}

// A curve is smoothed if it has at least SmoothFrom points. SmoothShare is the fraction of its
// points over which each smoothed value averages.
const (
	SmoothFrom  = 50
	SmoothShare = 0.02
)

// smooth replaces each value of a curve by the mean of the values around it. The window is centred,
// so that the curve does not lag. It narrows towards the beginning of a piece, where a loss falls
// too steeply to be averaged, and is truncated at the end, where readers look for the final value.
func smooth(pieces [][]Point) [][]Point {
	n := points(pieces)
	if n < SmoothFrom {
		return pieces
	}
	reach := max(1, int(SmoothShare*float64(n)/2))
	out := make([][]Point, len(pieces))
	for i, piece := range pieces {
		sums := make([]Sum, len(piece)+1) // sums[j] is the sum of the first j values
		for j, p := range piece {
			sums[j+1] = sums[j].Plus(p.Y)
		}
		out[i] = make([]Point, len(piece))
		for j, p := range piece {
			r := min(reach, j)
			from, to := j-r, min(j+r+1, len(piece))
			out[i][j] = Point{X: p.X, Y: sums[to].Minus(sums[from]) / float64(to-from)}
		}
	}
	return out
}

// Sum is a compensated sum: low accumulates the rounding errors (Knuth's two-sum), so that
// differences of sums are accurate even after a very large value.
type Sum struct{ high, low float64 }

// Minus returns s − before.
func (s Sum) Minus(before Sum) float64 { return (s.high - before.high) + (s.low - before.low) }

// Plus returns s + x.
func (s Sum) Plus(x float64) Sum {
	high := s.high + x
	part := high - s.high
	return Sum{high, s.low + (s.high - (high - part)) + (x - part)}
}

// maxPoints is the maximum number of points with which a curve is drawn: more than there are
// pixels, but few enough for a small file.
const maxPoints = 2000

// Thin returns about n points or fewer that look like the given curve when drawn: the first and
// last point and, from each run of consecutive points, its [Extremes].
func Thin[P any](points []P, n int, y func(P) float64) []P {
	if len(points) <= n {
		return points
	}
	stretch := (2*len(points) + n - 1) / n
	out := []P{points[0]}
	for inner := range slices.Chunk(points[1:len(points)-1], stretch) {
		out = append(out, Extremes(inner, y)...)
	}
	return append(out, points[len(points)-1])
}

// Extremes returns, in their order, the points with the lowest and the highest y, and the first
// with y = NaN, which breaks the line.
func Extremes[P any](points []P, y func(P) float64) (out []P) {
	low, high, broken := -1, -1, -1
	for i, p := range points {
		switch v := y(p); {
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
	return out
}
