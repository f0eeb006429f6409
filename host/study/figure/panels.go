package figure

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// panels are plots below each other that share the axis of steps.
type panels struct {
	list  []*panel
	above legend // what a panel has no room for
}

// panel is one of the plots.
type panel struct {
	plot   *plot.Plot
	height vg.Length // of the data area and what stands above it
}

const (
	footHeight = 0.4 * vg.Inch // tick labels and axis label below the last panel
	panelGap   = 0.12 * vg.Inch
)

// stack puts the panels that are not nil below each other, and the legend above them. They
// share one horizontal axis, labelled below the last.
func stack(above legend, list ...*panel) (composition, error) {
	list = slices.DeleteFunc(list, func(p *panel) bool { return p == nil })
	if len(list) == 0 {
		return nil, ErrNoData
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range list {
		low, high = min(low, p.plot.X.Min), max(high, p.plot.X.Max)
	}
	if low <= 0.05*high {
		low = 0 // the beginning of the run is in the figure
	}
	if low == high {
		low, high = low-1, high+1
	}
	for i, p := range list {
		p.plot.X.Min, p.plot.X.Max = low, high
		p.plot.X.Tick.Marker = ticks{unlabelled: i < len(list)-1}
	}
	list[len(list)-1].plot.X.Label.Text = "step"
	return panels{list, above}, nil
}

func (ps panels) gaps() vg.Length { return panelGap * vg.Length(len(ps.list)-1) }

// content is the height of the panels with the title and what stands below the last.
func (ps panels) content(title string) vg.Length {
	total := footHeight
	if title != "" {
		total += titleHeight
	}
	for _, p := range ps.list {
		total += p.height
	}
	return total
}

func (ps panels) height(title string, width vg.Length) vg.Length {
	return 2*margin + ps.content(title) + ps.gaps() + ps.above.height(width)
}

// lay draws the panels. Their data areas begin and end at the same columns, so that a
// step stands at the same place in all of them.
func (ps panels) lay(c draw.Canvas, title string) {
	if len(ps.above) > 0 {
		c.Max.Y -= drawTitle(c, title)
		c.Max.Y -= ps.above.draw(c)
		title = ""
	}
	list := ps.list
	list[0].plot.Title.Text = title
	scale := (c.Max.Y - c.Min.Y - ps.gaps()) / ps.content(title) // 1 unless a height was asked for
	cells := make([]draw.Canvas, len(list))
	top := c.Max.Y
	for i, p := range list {
		height := p.height
		if i == 0 && title != "" {
			height += titleHeight
		}
		if i == len(list)-1 {
			height += footHeight
		}
		cells[i] = c
		cells[i].Max.Y, cells[i].Min.Y = top, top-height*scale
		top = cells[i].Min.Y - panelGap
	}
	var left, right vg.Length
	for i, p := range list {
		data := p.plot.DataCanvas(cells[i])
		left = max(left, data.Min.X-cells[i].Min.X)
		right = max(right, cells[i].Max.X-data.Max.X)
	}
	for i, p := range list {
		data := p.plot.DataCanvas(cells[i])
		cell := draw.Crop(cells[i], left-(data.Min.X-cells[i].Min.X), (cells[i].Max.X-data.Max.X)-right, 0, 0)
		placeLegend(p.plot, p.plot.DataCanvas(cell))
		p.plot.Draw(cell)
	}
}

// placeLegend moves a legend to the right end of the data area with its text after
// the swatches, where it may grow in a viewer that uses another font.
func placeLegend(p *plot.Plot, data draw.Canvas) {
	width := p.Legend.Rectangle(data).Size().X
	p.Legend.Left = true
	p.Legend.XOffs = data.Max.X - data.Min.X - width - legendInset
}

// addLine adds the curve of a run to a panel.
func addLine(p *plot.Plot, pieces [][]Point, style draw.LineStyle) {
	for _, piece := range pieces {
		p.Add(&plotter.Line{XYs: coordinates(Thin(piece, maxPoints)), LineStyle: style})
	}
}

func coordinates(points []Point) plotter.XYs {
	out := make(plotter.XYs, len(points))
	for i, p := range points {
		out[i] = plotter.XY{X: p.X, Y: p.Y}
	}
	return out
}
