package figure

import (
	"image/color"
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

// Heights of the panels' data areas.
const (
	lossHeight   = 2.6 * vg.Inch
	errorHeight  = 1.6 * vg.Inch
	lambdaHeight = 1.1 * vg.Inch
)

func (c *Curves) compose(width vg.Length) (composition, error) {
	loss, names := lossPanel(c.Runs)
	if loss != nil && names.small(width) { // beside the curves, which fall
		for _, e := range names {
			loss.plot.Legend.Add(clean(e.name), e.picture)
		}
		names = nil
	}
	quantization := curvePanel(c.Runs, relativeError, "‖x − Q(x)‖ / ‖x‖  (%)", errorHeight)
	if quantization == nil { // no run has recorded it relative to the weights
		quantization = curvePanel(c.Runs, absoluteError, "‖x − Q(x)‖", errorHeight)
	}
	var strength *panel
	on := func(r metrics.Record) bool { return r.Lambda != nil && *r.Lambda != 0 }
	if slices.ContainsFunc(c.Runs, func(run Run) bool { return slices.ContainsFunc(run.Records, on) }) { // else CAGE was off
		strength = curvePanel(c.Runs, lambda, "CAGE λ", lambdaHeight)
	}
	return stack(names, loss, quantization, strength)
}

// small reports whether a legend hides little of a panel of a figure of the given width.
func (l legend) small(width vg.Length) bool {
	const most = 8
	widest, style := vg.Length(0), textStyle(textSize)
	for _, e := range l {
		widest = max(widest, style.Width(clean(e.name)))
	}
	return len(l) <= most && widest <= 0.5*width
}

func lossPanel(runs []Run) (*panel, legend) {
	label := "loss" // of a problem without data
	ofLanguage := func(r metrics.Record) bool { return r.Tokens > 0 }
	if slices.ContainsFunc(runs, func(r Run) bool { return slices.ContainsFunc(r.Records, ofLanguage) }) {
		label = "loss (nats per token)"
	}
	p := newPlot(label)
	drawn, validated := 0, 0
	for i, run := range slices.Backward(runs) { // the first run ends up on top
		train, validation := series(run.Records, trainLoss), series(run.Records, valLoss)
		drawn += points(train) + points(validation)
		validated += points(validation)
		c := runColor(i)
		if len(runs) == 1 && points(train) >= smoothFrom { // several raw curves would hide each other
			addLine(p, train, lineStyle(faint(c), rawWidth, nil))
		}
		addLine(p, smooth(train), lineStyle(c, lineWidth, runDashes(i)))
		c = validationColor(c, len(runs))
		addLine(p, validation, lineStyle(c, lineWidth, validationDashes))
		const maxMarks = 40 // more could not be told apart
		if points(validation) <= maxMarks {
			for _, piece := range validation {
				p.Add(&plotter.Scatter{XYs: coordinates(piece), GlyphStyle: validationMark(c)})
			}
		}
	}
	if drawn == 0 {
		return nil, nil
	}
	fitLoss(p, runs)
	return &panel{p, lossHeight}, runLegend(runs, validated > 0)
}

// validationColor sets the validation curve of a single run off from its training
// curve; with several runs the colour says which run it is.
func validationColor(c color.NRGBA, runs int) color.NRGBA {
	if runs == 1 {
		return palette[1]
	}
	return c
}

func validationMark(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
}

// runLegend names the runs, and then says what the kinds of lines mean. Where
// there is one run, or one kind of line, there is nothing to say about it.
func runLegend(runs []Run, validated bool) legend {
	var l legend
	for i, run := range runs {
		empty := points(series(run.Records, trainLoss))+points(series(run.Records, valLoss)) == 0
		if len(runs) > 1 && !empty {
			l = append(l, entry{run.Name, swatch{lineStyle(runColor(i), 2*lineWidth, runDashes(i)), nil}})
		}
	}
	if !validated {
		return l
	}
	train, validation := axisColor, axisColor
	if len(runs) == 1 {
		train, validation = runColor(0), validationColor(runColor(0), 1)
	}
	mark := validationMark(validation)
	label := "training"
	if slices.ContainsFunc(runs, func(run Run) bool { return points(series(run.Records, trainLoss)) >= smoothFrom }) {
		label = "training, smoothed"
		if len(runs) == 1 {
			label += " (faint: as recorded)"
		}
	}
	return append(l, entry{label, swatch{lineStyle(train, lineWidth, nil), nil}},
		entry{"validation", swatch{lineStyle(validation, lineWidth, validationDashes), &mark}})
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
			if n < smoothFrom || all[0].X > 0.05*all[n-1].X {
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

// curvePanel draws one field of every run, nil when none has it. Which run is which
// is said in the panel of the loss, which every run has.
func curvePanel(runs []Run, f field, label string, height vg.Length) *panel {
	p := newPlot(label)
	drawn := 0
	for i, run := range slices.Backward(runs) {
		pieces := series(run.Records, f)
		drawn += points(pieces)
		addLine(p, pieces, lineStyle(runColor(i), lineWidth, runDashes(i)))
	}
	if drawn == 0 {
		return nil
	}
	if room := 0.06 * (p.Y.Max - p.Y.Min); room > 0 {
		p.Y.Min, p.Y.Max = p.Y.Min-room, p.Y.Max+room
	}
	return &panel{p, height}
}
