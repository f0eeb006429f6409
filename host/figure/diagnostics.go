package figure

import (
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cage-qat/cage/host/metrics"
)

// WriteMovementFile draws the movement of the weights of runs to a file, as
// [WriteFile] draws their curves.
func WriteMovementFile(path string, runs []Run, window int, o Options) error {
	return save(path, func(w io.Writer, format Format) error { return WriteMovement(w, format, runs, window, o) })
}

// WriteMovement draws how the weights of runs move between the cells of their
// quantizer: a panel for the fraction of codes that change from sample to sample, one
// for the coherence of residuals, one for dwell times. λ_t is shaded behind each, from 0
// at the bottom to its largest value at the top. window is the number of samples that
// coherence was taken over; a line shows what independent residuals would have, unless
// it is 0. It returns ErrNoData when no run has recorded diagnostics.
func WriteMovement(w io.Writer, format Format, runs []Run, window int, o Options) error {
	panels, err := movementPanels(runs, window)
	if err != nil {
		return err
	}
	if len(panels) == 0 {
		return ErrNoData
	}
	panels[0].plot.Title.Text = o.Title
	width, height := size(panels, o)
	return render(w, format, width, height, func(c draw.Canvas) { lay(panels, c) })
}

const movementHeight = 1.7 * vg.Inch

// kind is one of the curves that a panel has of each run.
type kind struct {
	name string
	of   field
}

var (
	flipKinds      = []kind{{"codes that changed", flipRate}}
	coherenceKinds = []kind{
		{"vector", func(r *metrics.Record) *metrics.Number { return r.CoherenceVector }},
		{"mean over coordinates", func(r *metrics.Record) *metrics.Number { return r.Coherence }},
	}
	dwellKinds = []kind{
		{"mean", func(r *metrics.Record) *metrics.Number { return log10(r.DwellMean) }},
		{"ninth decile", func(r *metrics.Record) *metrics.Number { return log10(r.DwellP90) }},
		{"largest", func(r *metrics.Record) *metrics.Number { return log10(r.DwellMax) }},
	}
)

// log10 is for an axis marked by decades: plot's own logarithmic axis takes room for a
// label in the middle of its values, which is near its end.
func log10(n *metrics.Number) *metrics.Number {
	if n == nil {
		return nil
	}
	return metrics.Some(math.Log10(float64(*n)))
}

// decades are the marks of an axis of logarithms.
type decades struct{}

// Ticks returns the marks of values, at their logarithms.
func (decades) Ticks(low, high float64) []plot.Tick {
	marks := logTicks{}.Ticks(math.Pow(10, low), math.Pow(10, high))
	for i := range marks {
		marks[i].Value = math.Log10(marks[i].Value)
	}
	return marks
}

// flipRate is the fraction of codes that changed, in percent.
func flipRate(r *metrics.Record) *metrics.Number {
	if r.FlipRate == nil {
		return nil
	}
	return metrics.Some(100 * float64(*r.FlipRate))
}

// movementPanels makes the panels for which there is something to draw.
func movementPanels(runs []Run, window int) ([]panel, error) {
	var panels []panel
	for _, m := range []struct {
		label string
		kinds []kind
		scale func(p *plot.Plot) legend
	}{
		{"codes changed (%)", flipKinds, func(p *plot.Plot) legend { return scaleFlips(p, runs) }},
		{"coherence", coherenceKinds, func(p *plot.Plot) legend { return scaleCoherence(p, window) }},
		{"dwell time (steps)", dwellKinds, scaleDwell},
	} {
		p, err := movementPanel(runs, m.label, m.kinds)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		more := m.scale(p)
		p.Add(inside(append(kindLegend(m.kinds, len(runs)), more...)))
		panels = append(panels, panel{p, movementHeight})
	}
	if len(panels) > 0 {
		shareSteps(panels)
	}
	return panels, nil
}

// movementPanel draws some kinds of curves of every run, nil when none has any. With
// one run colours tell the kinds apart, with several they say which run it is.
func movementPanel(runs []Run, label string, kinds []kind) (*plot.Plot, error) {
	p := newPlot(label)
	for i, run := range runs {
		p.Add(shade{run.Records, shadeColor(i, len(runs))})
	}
	drawn := 0
	for i, run := range slices.Backward(runs) {
		for k, kind := range slices.Backward(kinds) {
			pieces := series(run.Records, kind.of)
			drawn += points(pieces)
			if err := addLine(p, pieces, kindStyle(i, k, len(runs))); err != nil {
				return nil, err
			}
		}
	}
	if drawn == 0 {
		return nil, nil
	}
	return p, nil
}

// kindLegend says which kind is which, where there are several.
func kindLegend(kinds []kind, runs int) legend {
	var l legend
	for k, kind := range kinds {
		style := kindStyle(0, k, runs)
		if runs > 1 {
			style.Color = axisColor
		}
		if len(kinds) > 1 {
			l = append(l, entry{kind.name, swatch{style, nil}})
		}
	}
	return l
}

func kindStyle(run, kind, runs int) draw.LineStyle {
	dash := dashes[kind%len(dashes)]
	if runs == 1 {
		return lineStyle(runColor(kind), lineWidth, dash)
	}
	return lineStyle(runColor(run), lineWidth, dash)
}

// legendRoom is how much higher a panel is for its legend.
const legendRoom = 1.22

// scaleFlips begins at 0, and has the legend that holds for all panels: which run is
// which, and what is shaded.
func scaleFlips(p *plot.Plot, runs []Run) legend {
	p.Y.Min, p.Y.Max = 0, max(legendRoom*p.Y.Max, 0.01)
	var l legend
	shaded := false
	for i, run := range runs {
		if len(runs) > 1 && points(series(run.Records, flipRate)) > 0 {
			l = append(l, entry{run.Name, swatch{kindStyle(i, 0, len(runs)), nil}})
		}
		shaded = shaded || largestLambda(run.Records) > 0
	}
	if shaded {
		c := shadeColor(0, 1)
		if len(runs) > 1 {
			c = faint(axisColor)
		}
		l = append(l, entry{"λ", block{c}})
	}
	return l
}

// scaleCoherence shows the whole range of a ratio and where independent residuals are.
func scaleCoherence(p *plot.Plot, window int) legend {
	p.Y.Min, p.Y.Max = 0, legendRoom
	if window < 1 {
		return nil
	}
	independent := plotter.NewFunction(func(float64) float64 { return 1 / math.Sqrt(float64(window)) })
	independent.Samples = 2
	independent.LineStyle = lineStyle(axisColor, axisWidth, dashes[2])
	p.Add(independent)
	return legend{{"independent residuals", swatch{independent.LineStyle, nil}}}
}

func scaleDwell(p *plot.Plot) legend {
	height := max(p.Y.Max-p.Y.Min, 0.5)
	p.Y.Min, p.Y.Max = p.Y.Min-0.06*height, p.Y.Min+legendRoom*height
	p.Y.Tick.Marker = decades{}
	return nil
}

// inside draws a legend at the top of a panel's data area.
type inside legend

// Plot draws the legend.
func (l inside) Plot(c draw.Canvas, _ *plot.Plot) {
	legend(l).draw(draw.Crop(c, legendInset, -legendInset, 0, -legendInset/2))
}

// shade fills the area below λ_t, scaled to the height of the panel.
type shade struct {
	records []metrics.Record
	color   color.NRGBA
}

// shadeColor is that of λ_t of the i-th run.
func shadeColor(i, runs int) color.NRGBA {
	c := palette[4]
	if runs > 1 {
		c = runColor(i)
	}
	c.A = bandAlpha
	return c
}

func largestLambda(records []metrics.Record) float64 {
	top := 0.0
	for _, piece := range series(records, lambda) {
		for _, xy := range piece {
			top = max(top, xy.Y)
		}
	}
	return top
}

// Plot draws the area; it has no part in the ranges of the axes.
func (s shade) Plot(c draw.Canvas, p *plot.Plot) {
	top := largestLambda(s.records)
	if top == 0 {
		return
	}
	x, _ := p.Transforms(&c)
	height := c.Max.Y - c.Min.Y
	for _, piece := range series(s.records, lambda) {
		var outline []vg.Point
		for _, xy := range thin(piece, maxPoints, ordinate) {
			outline = append(outline, vg.Point{X: x(xy.X), Y: c.Min.Y + height*vg.Length(max(0, xy.Y)/top)})
		}
		outline = append(outline, vg.Point{X: outline[len(outline)-1].X, Y: c.Min.Y}, vg.Point{X: outline[0].X, Y: c.Min.Y})
		if outline = c.ClipPolygonXY(outline); len(outline) > 2 {
			c.FillPolygon(s.color, outline)
		}
	}
}

// block is the picture of an area in a legend.
type block struct{ color color.NRGBA }

// Thumbnail draws the block.
func (b block) Thumbnail(c *draw.Canvas) { c.FillPolygon(b.color, corners(c.Rectangle)) }
