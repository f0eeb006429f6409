package figure

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Heights of the panels' data areas.
const (
	lossHeight   = 2.6 * vg.Inch
	errorHeight  = 1.6 * vg.Inch
	lambdaHeight = 1.1 * vg.Inch
)

// build makes the panels for which there is something to draw, top to bottom.
func build(runs []Run) ([]panel, error) {
	var panels []panel
	for _, newPanel := range []func([]Run) (*panel, error){lossPanel, errorPanel, lambdaPanel} {
		p, err := newPanel(runs)
		if err != nil {
			return nil, err
		}
		if p != nil {
			panels = append(panels, *p)
		}
	}
	if len(panels) > 0 {
		shareSteps(panels)
	}
	return panels, nil
}

// shareSteps gives all panels one horizontal axis, labelled below the last.
func shareSteps(panels []panel) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		low, high = min(low, p.plot.X.Min), max(high, p.plot.X.Max)
	}
	if low <= 0.05*high {
		low = 0 // the beginning of the run is in the figure
	}
	if low == high {
		low, high = low-1, high+1
	}
	for i, p := range panels {
		p.plot.X.Min, p.plot.X.Max = low, high
		p.plot.X.Tick.Marker = ticks{unlabelled: i < len(panels)-1}
	}
	panels[len(panels)-1].plot.X.Label.Text = "step"
}

// lossPanel draws training and validation loss.
func lossPanel(runs []Run) (*panel, error) {
	p := newPlot("loss (nats per token)")
	drawn, validated := 0, 0
	for i, run := range slices.Backward(runs) { // the first run ends up on top
		train, validation := series(run.Records, trainLoss), series(run.Records, valLoss)
		drawn += points(train) + points(validation)
		validated += points(validation)
		c := runColor(i)
		if len(runs) == 1 && points(train) >= smoothFrom {
			// With several runs, the raw curves would hide each other.
			if err := addLine(p, train, lineStyle(faint(c), rawWidth, nil)); err != nil {
				return nil, err
			}
		}
		if err := addLine(p, smooth(train), lineStyle(c, lineWidth, runDashes(i))); err != nil {
			return nil, err
		}
		if err := addValidation(p, validation, validationColor(c, len(runs))); err != nil {
			return nil, err
		}
	}
	if drawn == 0 {
		return nil, nil
	}
	addLegend(p, runs, validated > 0)
	fitLoss(p, runs)
	return &panel{p, lossHeight}, nil
}

// validationColor sets the validation curve of a single run off from its training
// curve; with several runs the colour says which run it is.
func validationColor(c color.NRGBA, runs int) color.NRGBA {
	if runs == 1 {
		return palette[1]
	}
	return c
}

// addLegend names the runs, and then says what the kinds of lines mean. Where
// there is one run, or one kind of line, there is nothing to say about it.
func addLegend(p *plot.Plot, runs []Run, validated bool) {
	for i, run := range runs {
		empty := points(series(run.Records, trainLoss))+points(series(run.Records, valLoss)) == 0
		if len(runs) > 1 && !empty {
			p.Legend.Add(run.Name, swatch{lineStyle(runColor(i), 2*lineWidth, runDashes(i)), nil})
		}
	}
	if !validated {
		return
	}
	train, validation := axisColor, axisColor
	if len(runs) == 1 {
		train, validation = runColor(0), validationColor(runColor(0), 1)
	}
	mark := glyph(validation)
	p.Legend.Add("training", swatch{lineStyle(train, lineWidth, nil), nil})
	p.Legend.Add("validation", swatch{lineStyle(validation, lineWidth, validationDashes()), &mark})
}

// fitLoss leaves the steep fall of the first steps out of a long run's panel: the
// vertical axis ends where the smoothed curves are after a share of the steps,
// a larger one when runs are compared. Without that, the differences that matter
// would be too small to see.
func fitLoss(p *plot.Plot, runs []Run) {
	share := 0.01
	if len(runs) > 1 {
		share = 0.05
	}
	top := math.Inf(-1)
	for _, run := range runs {
		train := series(run.Records, trainLoss)
		n := points(train)
		if n > 0 && (n < smoothFrom || !fromBeginning(train)) {
			return // a short run, or the end of one, which fits as it is
		}
		skip := int(math.Ceil(share * float64(n)))
		for _, piece := range smooth(train) {
			rest := piece[min(skip, len(piece)):]
			skip -= len(piece) - len(rest)
			for _, xy := range rest {
				top = max(top, xy.Y)
			}
		}
	}
	if top > p.Y.Min {
		p.Y.Max = min(p.Y.Max, top+0.05*(top-p.Y.Min))
	}
	p.Y.Min -= 0.03 * (p.Y.Max - p.Y.Min)
}

// fromBeginning tells whether a curve begins where its run did, or soon after.
func fromBeginning(pieces []plotter.XYs) bool {
	last := pieces[len(pieces)-1]
	return pieces[0][0].X <= 0.05*last[len(last)-1].X
}

// errorPanel draws the quantization error: relative to the weights where any run
// has recorded that, else its norm.
func errorPanel(runs []Run) (*panel, error) {
	p, err := curvePanel(runs, relativeError, "‖x − Q(x)‖ / ‖x‖  (%)", errorHeight)
	if p != nil || err != nil {
		return p, err
	}
	return curvePanel(runs, absoluteError, "‖x − Q(x)‖", errorHeight)
}

// lambdaPanel draws λ_t, unless it is 0 throughout: then CAGE was off.
func lambdaPanel(runs []Run) (*panel, error) {
	on := false
	for _, run := range runs {
		for i := range run.Records {
			on = on || run.Records[i].Lambda != 0
		}
	}
	if !on {
		return nil, nil
	}
	return curvePanel(runs, lambda, "CAGE λ", lambdaHeight)
}

// curvePanel draws one field of every run, nil when none has it. Which run is which
// is said in the panel of the loss, which every run has.
func curvePanel(runs []Run, f field, label string, height vg.Length) (*panel, error) {
	p := newPlot(label)
	drawn := 0
	for i, run := range slices.Backward(runs) {
		pieces := series(run.Records, f)
		drawn += points(pieces)
		if err := addLine(p, pieces, lineStyle(runColor(i), lineWidth, runDashes(i))); err != nil {
			return nil, err
		}
	}
	if drawn == 0 {
		return nil, nil
	}
	if room := 0.06 * (p.Y.Max - p.Y.Min); room > 0 {
		p.Y.Min, p.Y.Max = p.Y.Min-room, p.Y.Max+room
	}
	return &panel{p, height}, nil
}

// addLine adds a curve in one style.
func addLine(p *plot.Plot, pieces []plotter.XYs, style draw.LineStyle) error {
	for _, piece := range pieces {
		line, err := plotter.NewLine(plotter.XYs(thin(piece, maxPoints, ordinate)))
		if err != nil {
			return err
		}
		line.LineStyle = style
		p.Add(line)
	}
	return nil
}

// addValidation adds a dashed curve with a mark at each evaluation, as long as
// there are few enough of them to tell apart.
func addValidation(p *plot.Plot, pieces []plotter.XYs, c color.NRGBA) error {
	if err := addLine(p, pieces, lineStyle(c, lineWidth, validationDashes())); err != nil {
		return err
	}
	const maxMarks = 40
	if points(pieces) <= maxMarks {
		for _, piece := range pieces {
			marks, err := plotter.NewScatter(piece)
			if err != nil {
				return err
			}
			marks.GlyphStyle = glyph(c)
			p.Add(marks)
		}
	}
	return nil
}

func glyph(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
}

// swatch is the picture of a line in a legend, with a mark in the middle if it has one.
type swatch struct {
	line draw.LineStyle
	mark *draw.GlyphStyle
}

// Thumbnail draws the swatch.
func (s swatch) Thumbnail(c *draw.Canvas) {
	y := c.Center().Y
	c.StrokeLine2(s.line, c.Min.X, y, c.Max.X, y)
	if s.mark != nil {
		c.DrawGlyph(*s.mark, vg.Point{X: c.Center().X, Y: y})
	}
}
