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

// Run is one run to draw. Its records are in the order of their steps.
type Run struct {
	Name    string // name in the legend
	Records []metrics.Record
}

// Curves shows the course of runs: a panel for the loss (training as a smoothed line over
// a faint raw one, validation dashed), one for the quantization error and one for λ_t. A
// panel is left out if no run has a value for it.
type Curves struct{ Runs []Run }

func (c *Curves) compose(vg.Length) *composition {
	out := &composition{}
	c.addLoss(out)
	before := len(out.panels)
	c.addPanel(out, "‖x − Q(x)‖ / ‖x‖  (%)", 1.6*vg.Inch, func(r *metrics.Record) *metrics.Number {
		return mapNumber(r.ErrorRel, func(x float64) float64 { return 100 * math.Sqrt(x) })
	})
	if len(out.panels) == before { // no run has recorded it relative to the weights
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

// any reports whether a record of any run fulfils a condition.
func (c *Curves) any(is func(metrics.Record) bool) bool {
	return slices.ContainsFunc(c.Runs, func(run Run) bool { return slices.ContainsFunc(run.Records, is) })
}

func (c *Curves) addLoss(out *composition) {
	label := "loss" // of a problem without data
	if c.any(func(r metrics.Record) bool { return r.Tokens > 0 }) {
		label = "loss (nats per token)"
	}
	p := newPlot(label, "xy")
	single := len(c.Runs) == 1
	drawn, validated, smoothed := 0, false, false
	var names legend
	for i, run := range slices.Backward(c.Runs) { // the first run ends up on top
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
		const maxMarks = 40 // more could not be told apart
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

// validationStyle sets the validation curve of a single run off from its training
// curve; with several runs the colour says which run it is.
func validationStyle(run int, single bool) (draw.LineStyle, draw.GlyphStyle) {
	color := runColor(run)
	if single {
		color = palette[1]
	}
	return lineStyle(color, lineWidth, []vg.Length{4, 2}),
		draw.GlyphStyle{Color: color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
}

// fitLoss leaves the steep fall of the first steps out of a long run's panel: the
// vertical axis ends where the smoothed curves and the validation are after a share
// of the steps, a larger one when runs are compared. Without that, the differences
// that matter would be too small to see.
func fitLoss(p *plot.Plot, runs []Run) {
	share := 0.01
	if len(runs) > 1 {
		share = 0.05
	}
	top := math.Inf(-1)
	for _, run := range runs {
		train := series(run.Records, trainLoss)
		from := math.Inf(-1) // the step at which what counts begins
		if all := slices.Concat(train...); len(all) > 0 {
			n := len(all)
			if n < SmoothFrom || all[0].X > 0.05*all[n-1].X {
				return // a short run, or the end of one: all of it is shown
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

// addPanel draws one field of every run, unless none has it. The legend of the loss, which every
// run has, names the runs.
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
