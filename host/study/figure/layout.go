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
		// The legend is at the right end of the data area, with its text after the swatches, where
		// it may grow in a viewer that uses another font.
		area, names := p.plot.DataCanvas(cell), &p.plot.Legend
		names.XOffs = area.Max.X - area.Min.X - names.Rectangle(area).Size().X - legendInset
		names.Left = true
		p.plot.Draw(cell)
	}
}

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

// single is a figure of one plot.
type single struct {
	plot   *plot.Plot
	legend legend
	scale  *plot.Plot // the colour scale at the right; nil: none
	equal  bool       // one unit is as long in x as in y
}

const (
	scaleWidth = 0.75 * vg.Inch // the colour scale with its numbers and label
	scaleGap   = 0.15 * vg.Inch
)

// defaultLegend is the height of a legend up to which a figure of one plot is no higher than
// others.
const defaultLegend = 4*rowHeight + legendFoot

func (s *single) height(_ string, width vg.Length) vg.Length {
	return defaultHeight + max(0, s.legend.height(width)-defaultLegend)
}

// drawTitle draws a title at the top of c and returns the height it took.
func drawTitle(c draw.Canvas, title string) vg.Length {
	if title == "" {
		return 0
	}
	style := textStyle(titleSize)
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, fit(title, style, c.Size().X))
	return titleHeight
}

// lay draws the title, below it the legend, and the plot in the rest.
func (s *single) lay(c draw.Canvas, title string) {
	c.Max.Y -= drawTitle(c, title)
	if len(s.legend) > 0 {
		c.Max.Y -= s.legend.draw(c)
	}
	c.Max.Y -= vg.Points(3) // room for half of a number at the upper end
	scale := c
	if s.scale != nil {
		c.Max.X -= scaleWidth + scaleGap
	}
	fitLabels(s.plot, c)
	if s.equal {
		equalize(s.plot, s.plot.DataCanvas(c).Size())
	}
	s.plot.Draw(c)
	if s.scale != nil {
		data := s.plot.DataCanvas(c)
		scale.Min = vg.Point{X: scale.Max.X - scaleWidth, Y: data.Min.Y}
		scale.Max.Y = data.Max.Y
		fitLabels(s.scale, scale)
		s.scale.Draw(scale)
	}
}

// fitLabels shortens labels that are longer than their axes. The plot would make room
// for them at the cost of its data area.
func fitLabels(p *plot.Plot, c draw.Canvas) {
	x, y := p.X.Label.Text, p.Y.Label.Text
	p.X.Label.Text, p.Y.Label.Text = "", ""
	size := p.DataCanvas(c).Size()
	if x != "" {
		p.X.Label.Text = fit(x, p.X.Label.TextStyle, size.X)
	}
	if y != "" {
		p.Y.Label.Text = fit(y, p.Y.Label.TextStyle, 0.9*size.Y)
	}
}

// equalize widens one of the two ranges until a unit is as long in x as in y.
func equalize(p *plot.Plot, size vg.Point) {
	unit := max((p.X.Max-p.X.Min)/float64(size.X), (p.Y.Max-p.Y.Min)/float64(size.Y))
	for axis, length := range map[*plot.Axis]vg.Length{&p.X: size.X, &p.Y: size.Y} {
		room := unit*float64(length) - (axis.Max - axis.Min)
		axis.Min, axis.Max = axis.Min-room/2, axis.Max+room/2
	}
}

// legend names the series, above the data area, where it hides nothing.
type legend []entry

type entry struct {
	name    string
	picture plot.Thumbnailer
}

const (
	pictureWidth = 20 * vg.Length(1) // points
	pictureGap   = 4
	entryGap     = 14
	rowHeight    = 14
	legendFoot   = 4 // between the legend and what is below it
)

// placedEntry is an entry with its place: how far from the left, and in which row.
type placedEntry struct {
	entry
	x   vg.Length
	row int
}

// place arranges the entries in rows of the given width, their names shortened to it.
func (l legend) place(width vg.Length) []placedEntry {
	style := textStyle(textSize)
	out := make([]placedEntry, len(l))
	x, row := vg.Length(0), 0
	for i, e := range l {
		e.name = fit(clean(e.name), style, width-pictureWidth-pictureGap)
		its := pictureWidth + pictureGap + style.Width(e.name)
		if x > 0 && x+its > width {
			x, row = 0, row+1
		}
		out[i] = placedEntry{e, x, row}
		x += its + entryGap
	}
	return out
}

// height is what the legend takes at a width; 0 without any entry.
func (l legend) height(width vg.Length) vg.Length {
	if len(l) == 0 {
		return 0
	}
	return vg.Length(l.place(width)[len(l)-1].row+1)*rowHeight + legendFoot
}

// draw draws the legend in rows at the top of c and returns the height it took: half of c at
// most, so that a figure whose height was chosen has room for what it shows.
func (l legend) draw(c draw.Canvas) vg.Length {
	style := textStyle(textSize)
	style.YAlign = draw.YCenter
	rows := 0
	for _, e := range l.place(c.Size().X) {
		if e.row > 0 && vg.Length(e.row+1)*rowHeight > c.Size().Y/2 {
			break
		}
		rows = e.row + 1
		x, y := c.Min.X+e.x, c.Max.Y-(vg.Length(e.row)+0.5)*rowHeight
		e.picture.Thumbnail(&draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - rowHeight/2 + 2}, Max: vg.Point{X: x + pictureWidth, Y: y + rowHeight/2 - 2},
		}})
		c.FillText(style, vg.Point{X: x + pictureWidth + pictureGap, Y: y}, e.name)
	}
	return vg.Length(rows)*rowHeight + legendFoot
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

// area is the picture of an area, such as a bar, in a legend.
type area func(c *draw.Canvas)

// Thumbnail draws the area.
func (a area) Thumbnail(c *draw.Canvas) { a(c) }
