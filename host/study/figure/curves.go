package figure

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cage-qat/cage/host/train/metrics"
)

// Run is one run to draw. Its records are in ascending order of steps.
type Run struct {
	Name    string // name in the legend
	Records []metrics.Record
}

// Curves shows metrics of runs over the steps: a panel for the loss (training as a smoothed line
// over a faint raw one, validation dashed), one for the quantization error and one for λ_t. A panel
// is omitted if no run has a value for it.
type Curves struct{ Runs []Run }

func (c *Curves) compose(vg.Length) *composition {
	out := &composition{}
	c.addLoss(out)
	before := len(out.panels)
	c.addPanel(out, "‖x − Q(x)‖ / ‖x‖  (%)", 1.6*vg.Inch, func(r *metrics.Record) *metrics.Number {
		return mapNumber(r.ErrorRel, func(x float64) float64 { return 100 * math.Sqrt(x) })
	})
	if len(out.panels) == before { // no run has recorded the relative error
		c.addPanel(out, "‖x − Q(x)‖", 1.6*vg.Inch, func(r *metrics.Record) *metrics.Number {
			return mapNumber(r.ErrorNorm2, math.Sqrt)
		})
	}
	if c.any(func(r metrics.Record) bool { return r.Lambda != nil && *r.Lambda != 0 }) { // else CAGE was off
		c.addPanel(out, "CAGE λ", 1.1*vg.Inch, func(r *metrics.Record) *metrics.Number { return r.Lambda })
	}
	if len(out.panels) == 0 {
		return nil
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range out.panels {
		low, high = min(low, p.plot.X.Min), max(high, p.plot.X.Max)
	}
	if low <= 0.05*high {
		low = 0 // the beginning of the run is in the figure
	}
	if low == high {
		low, high = low-1, high+1
	}
	for i, p := range out.panels {
		p.plot.X.Min, p.plot.X.Max = low, high
		p.plot.X.Tick.Marker = ticks{unlabelled: i < len(out.panels)-1}
	}
	out.panels[len(out.panels)-1].plot.X.Label.Text = "step"
	return out
}

// any reports whether a record of any run satisfies a condition.
func (c *Curves) any(is func(metrics.Record) bool) bool {
	return slices.ContainsFunc(c.Runs, func(run Run) bool { return slices.ContainsFunc(run.Records, is) })
}

func (c *Curves) addLoss(out *composition) {
	label := "loss" // for a problem without data
	if c.any(func(r metrics.Record) bool { return r.Tokens > 0 }) {
		label = "loss (nats per token)"
	}
	p := newPlot(label, "xy")
	single := len(c.Runs) == 1
	drawn, validated, smoothed := 0, false, false
	var names legend
	for i, run := range slices.Backward(c.Runs) { // the first run is drawn on top
		train, validation := series(run.Records, trainLoss), series(run.Records, valLoss)
		all := points(train) + points(validation)
		drawn += all
		validated = validated || len(validation) > 0
		smoothed = smoothed || points(train) >= SmoothFrom
		color := runColor(i)
		if single && points(train) >= SmoothFrom { // several raw curves would hide each other
			addLine(p, train, lineStyle(faint(color), rawWidth, nil))
		}
		addLine(p, smooth(train), lineStyle(color, lineWidth, runDashes(i)))
		line, mark := validationStyle(i, single)
		addLine(p, validation, line)
		const maxMarks = 40 // more could not be distinguished
		if points(validation) <= maxMarks {
			for _, piece := range validation {
				p.Add(&plotter.Scatter{XYs: coordinates(piece), GlyphStyle: mark})
			}
		}
		if !single && all > 0 {
			names = append(names, entry{run.Name, swatch{lineStyle(color, 2*lineWidth, runDashes(i)), nil}})
		}
	}
	if drawn == 0 {
		return
	}
	fitLoss(p, c.Runs)
	slices.Reverse(names)
	if validated {
		label := "training"
		if smoothed {
			label = "training, smoothed"
			if single {
				label += " (faint: as recorded)"
			}
		}
		train := lineStyle(runColor(0), lineWidth, nil)
		line, mark := validationStyle(0, single)
		if !single {
			train.Color, line.Color, mark.Color = axisColor, axisColor, axisColor
		}
		names = append(names, entry{label, swatch{train, nil}}, entry{"validation", swatch{line, &mark}})
	}
	out.legend = names
	out.panels = append(out.panels, panel{p, 2.6 * vg.Inch})
}

// validationStyle returns the style of a validation curve. For a single run it differs in colour
// from the training curve; with several runs the colour identifies the run.
func validationStyle(run int, single bool) (draw.LineStyle, draw.GlyphStyle) {
	color := runColor(run)
	if single {
		color = palette[1]
	}
	return lineStyle(color, lineWidth, []vg.Length{4, 2}),
		draw.GlyphStyle{Color: color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
}

// fitLoss cuts off the steep fall of the first steps of long runs: the vertical axis ends at the
// largest value of the smoothed curves and the validation after a fraction of the steps, which is
// larger if runs are compared. Otherwise the relevant differences would be too small to see.
func fitLoss(p *plot.Plot, runs []Run) {
	share := 0.01
	if len(runs) > 1 {
		share = 0.05
	}
	top := math.Inf(-1)
	for _, run := range runs {
		train := series(run.Records, trainLoss)
		from := math.Inf(-1) // first step whose values count
		if all := slices.Concat(train...); len(all) > 0 {
			n := len(all)
			if n < SmoothFrom || all[0].X > 0.05*all[n-1].X {
				return // a short run, or the end of one: the axis shows all of it
			}
			from = all[min(int(math.Ceil(share*float64(n))), n-1)].X
		}
		for _, piece := range slices.Concat(smooth(train), series(run.Records, valLoss)) {
			for _, pt := range piece {
				if pt.X >= from {
					top = max(top, pt.Y)
				}
			}
		}
	}
	if top > p.Y.Min {
		p.Y.Max = min(p.Y.Max, top+0.05*(top-p.Y.Min))
	}
	p.Y.Min -= 0.03 * (p.Y.Max - p.Y.Min)
}

// addPanel draws one field of every run, unless no run has it. The legend in the loss panel, which
// every run has, names the runs.
func (c *Curves) addPanel(out *composition, label string, height vg.Length, f field) {
	p := newPlot(label, "xy")
	drawn := 0
	for i, run := range slices.Backward(c.Runs) {
		pieces := series(run.Records, f)
		drawn += points(pieces)
		addLine(p, pieces, lineStyle(runColor(i), lineWidth, runDashes(i)))
	}
	if drawn == 0 {
		return
	}
	if room := 0.06 * (p.Y.Max - p.Y.Min); room > 0 {
		p.Y.Min, p.Y.Max = p.Y.Min-room, p.Y.Max+room
	}
	out.panels = append(out.panels, panel{p, height})
}

func addLine(p *plot.Plot, pieces [][]Point, style draw.LineStyle) {
	for _, piece := range pieces {
		p.Add(&plotter.Line{XYs: coordinates(Thin(piece, maxPoints, Point.value)), LineStyle: style})
	}
}

// field returns one value of a record, nil if it was not measured.
type field func(r *metrics.Record) *metrics.Number

func valLoss(r *metrics.Record) *metrics.Number { return r.ValLoss }

// trainLoss returns the cross-entropy, as validation does, whatever loss training minimizes.
func trainLoss(r *metrics.Record) *metrics.Number {
	if r.CrossEntropy != nil {
		return r.CrossEntropy
	}
	return &r.Loss
}

// mapNumber returns f of a number; nil for nil.
func mapNumber(n *metrics.Number, f func(float64) float64) *metrics.Number {
	if n == nil {
		return nil
	}
	return metrics.Some(f(float64(*n)))
}

// series returns a curve as pieces: the line breaks where a value is not finite, so that a failed
// step is visible. Steps that were not measured are skipped.
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

// split divides a list at points that cannot be drawn on the axes, which break the line.
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

// SmoothFrom is the number of points from which a curve is smoothed, and SmoothShare the fraction
// of its points that each smoothed value averages.
const (
	SmoothFrom  = 50
	SmoothShare = 0.02
)

// smooth replaces each value of a curve by the mean of the values around it. The window is centred,
// so that the curve does not lag. It narrows towards the beginning of a piece, where a loss falls
// too steeply to be averaged, and is truncated at the end, where the result of a run is read off.
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
// differences of sums stay accurate after a very large value.
type Sum struct{ high, low float64 }

// Minus returns s − before.
func (s Sum) Minus(before Sum) float64 { return (s.high - before.high) + (s.low - before.low) }

// Plus returns s + x.
func (s Sum) Plus(x float64) Sum {
	high := s.high + x
	part := high - s.high
	return Sum{high, s.low + (s.high - (high - part)) + (x - part)}
}

// maxPoints is the largest number of points with which a curve is drawn: more than there are
// pixels, but few enough for a small file.
const maxPoints = 2000

// Thin returns about n points or fewer of a curve that look the same when drawn: of each run of
// consecutive points, those with the lowest and the highest value y, and the first whose y is NaN,
// which breaks the line; and both ends of the curve.
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

// value returns the value by which points are thinned.
func (p Point) value() float64 { return p.Y }
