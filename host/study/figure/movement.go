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

// Movement shows how the weights of runs move between the cells of their quantizer: a
// panel for the fraction of codes that change from sample to sample, one for the
// coherence of residuals, one for dwell times. λ_t is shaded behind each, from 0 at the
// bottom to its largest value at the top.
type Movement struct {
	Runs []Run
	// Window is the number of samples over which coherence was computed. Unless it is 0,
	// a line shows the coherence that independent residuals would have.
	Window int
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
	// plot's own logarithmic axis takes room for a label in the middle of its values, which
	// is near its end. So logarithms are drawn, on an axis marked by decades.
	dwellKinds = []kind{
		{"mean", func(r *metrics.Record) *metrics.Number { return mapNumber(r.DwellMean, math.Log10) }},
		{"ninth decile", func(r *metrics.Record) *metrics.Number { return mapNumber(r.DwellP90, math.Log10) }},
		{"largest", func(r *metrics.Record) *metrics.Number { return mapNumber(r.DwellMax, math.Log10) }},
	}
)

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
	return mapNumber(r.FlipRate, func(x float64) float64 { return 100 * x })
}

func (m *Movement) compose(width vg.Length) (composition, error) {
	inside, above := m.legend(), legend(nil)
	if inside.height(width-axisRoom) > legend.height(inside[:min(1, len(inside))], width) {
		inside, above = nil, inside // more than one row would hide curves
	}
	scaleFlips := func(p *plot.Plot) legend {
		p.Y.Min, p.Y.Max = 0, max(legendRoom*p.Y.Max, 0.01)
		return inside
	}
	scaleDwell := func(p *plot.Plot) legend {
		height := max(p.Y.Max-p.Y.Min, 0.5)
		p.Y.Min, p.Y.Max = p.Y.Min-0.06*height, p.Y.Min+legendRoom*height
		p.Y.Tick.Marker = decades{}
		return nil
	}
	return stack(above,
		m.panel("codes changed (%)", flipKinds, scaleFlips),
		m.panel("coherence", coherenceKinds, m.scaleCoherence),
		m.panel("dwell time (steps)", dwellKinds, scaleDwell))
}

// panel draws some kinds of curves of every run, nil when none has any. With one run
// colours tell the kinds apart, with several they say which run it is. scale sets the
// vertical axis, and returns what the legend says besides the kinds.
func (m *Movement) panel(label string, kinds []kind, scale func(p *plot.Plot) legend) *panel {
	p := newPlot(label)
	for i, run := range m.Runs {
		p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { shade(c, p, run.Records, shadeColor(i, len(m.Runs))) }))
	}
	drawn := 0
	for i, run := range slices.Backward(m.Runs) {
		for k, kind := range slices.Backward(kinds) {
			pieces := series(run.Records, kind.of)
			drawn += points(pieces)
			addLine(p, pieces, kindStyle(i, k, len(m.Runs)))
		}
	}
	if drawn == 0 {
		return nil
	}
	more := scale(p)
	var l legend
	for k, kind := range kinds {
		style := kindStyle(0, k, len(m.Runs))
		if len(m.Runs) > 1 {
			style.Color = axisColor
		}
		if len(kinds) > 1 {
			l = append(l, entry{kind.name, swatch{style, nil}})
		}
	}
	l = append(l, more...)
	p.Add(layerFunc(func(c draw.Canvas, _ *plot.Plot) { // at the top of the panel's data area
		l.draw(draw.Crop(c, legendInset, -legendInset, 0, -legendInset/2))
	}))
	return &panel{p, movementHeight}
}

func kindStyle(run, kind, runs int) draw.LineStyle {
	color := runColor(run)
	if runs == 1 {
		color = runColor(kind)
	}
	return lineStyle(color, lineWidth, dashes[kind%len(dashes)])
}

const (
	legendRoom = 1.22    // how much higher a panel is for its legend
	axisRoom   = vg.Inch // what margins, numbers and labels take of the width, about
)

// legend holds for all panels: it says which run is which, and what is shaded.
func (m *Movement) legend() legend {
	var l legend
	shaded := false
	for i, run := range m.Runs {
		if len(m.Runs) > 1 && points(series(run.Records, flipRate)) > 0 {
			l = append(l, entry{run.Name, swatch{kindStyle(i, 0, len(m.Runs)), nil}})
		}
		shaded = shaded || largestLambda(run.Records) > 0
	}
	if shaded {
		c := shadeColor(0, 1)
		if len(m.Runs) > 1 {
			c = faint(axisColor)
		}
		l = append(l, entry{"λ", area(func(canvas *draw.Canvas) { canvas.FillPolygon(c, corners(canvas.Rectangle)) })})
	}
	return l
}

// scaleCoherence shows the whole range of a ratio and where independent residuals are.
func (m *Movement) scaleCoherence(p *plot.Plot) legend {
	p.Y.Min, p.Y.Max = 0, legendRoom
	if m.Window < 1 {
		return nil
	}
	independent := plotter.NewFunction(func(float64) float64 { return 1 / math.Sqrt(float64(m.Window)) })
	independent.Samples = 2
	independent.LineStyle = lineStyle(axisColor, axisWidth, dashes[2])
	p.Add(independent)
	return legend{{"independent residuals", swatch{independent.LineStyle, nil}}}
}

// shadeColor is the colour in which λ_t of the i-th run is shaded.
func shadeColor(i, runs int) color.NRGBA {
	if runs > 1 {
		return band(runColor(i), 1)
	}
	return band(palette[4], 1)
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

// shade fills the area below λ_t, scaled to the height of the panel. It has no part in the
// ranges of the axes.
func shade(c draw.Canvas, p *plot.Plot, records []metrics.Record, ink color.Color) {
	top := largestLambda(records)
	if top == 0 {
		return
	}
	x, _ := p.Transforms(&c)
	height := c.Max.Y - c.Min.Y
	for _, piece := range series(records, lambda) {
		var outline []vg.Point
		for _, xy := range Thin(piece, maxPoints) {
			outline = append(outline, vg.Point{X: x(xy.X), Y: c.Min.Y + height*vg.Length(max(0, xy.Y)/top)})
		}
		outline = append(outline, vg.Point{X: outline[len(outline)-1].X, Y: c.Min.Y}, vg.Point{X: outline[0].X, Y: c.Min.Y})
		fillArea(c, ink, outline)
	}
}
