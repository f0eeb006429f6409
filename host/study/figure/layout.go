package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// composition is a figure before its layout: vertically stacked panels, whose data areas are
// aligned at both sides, and a legend above them.
type composition struct {
	panels []panel
	legend legend
	scale  *plot.Plot // the colour scale at the right; nil: none
	equal  bool       // one unit has the same length in x and y
}

type panel struct {
	plot   *plot.Plot
	height vg.Length // height of the data area
}

const (
	plotHeight  = 2.8 * vg.Inch // height of the panel of a figure that has only one
	footHeight  = 0.4 * vg.Inch // tick labels and axis label below the last panel
	titleHeight = 0.3 * vg.Inch
	panelGap    = 0.12 * vg.Inch
	scaleWidth  = 0.75 * vg.Inch // the colour scale with its numbers and label
	scaleGap    = 0.15 * vg.Inch
)

// height returns the default height of the figure. The given width excludes the margins.
func (f *composition) height(title string, width vg.Length) vg.Length {
	total := 2*margin + footHeight + panelGap*vg.Length(len(f.panels)-1)
	total += f.legend.height(width)
	if title != "" {
		total += titleHeight
	}
	for _, p := range f.panels {
		total += p.height
	}
	return total
}

func (f *composition) layOut(c draw.Canvas, title string) {
	if title != "" {
		style := textStyle(titleSize)
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, shorten(title, style, c.Size().X))
		c.Max.Y -= titleHeight
	}
	c.Max.Y -= f.legend.draw(c)
	c.Max.Y -= vg.Points(3) // half of the tick label at the upper end
	whole, last := c, len(f.panels)-1
	if f.scale != nil {
		c.Max.X -= scaleWidth + scaleGap
	}
	content := footHeight
	for _, p := range f.panels {
		content += p.height
	}
	unit := (c.Size().Y - panelGap*vg.Length(last)) / content // 1 unless a height was requested
	cells := make([]draw.Canvas, len(f.panels))
	top, left, right := c.Max.Y, vg.Length(0), vg.Length(0)
	for i, p := range f.panels {
		height := p.height
		if i == last {
			height += footHeight
		}
		cells[i] = c
		cells[i].Max.Y, cells[i].Min.Y = top, top-height*unit
		top = cells[i].Min.Y - panelGap
		fitLabels(p.plot, cells[i])
		data := p.plot.DataCanvas(cells[i])
		left, right = max(left, data.Min.X-c.Min.X), max(right, c.Max.X-data.Max.X)
	}
	for i, p := range f.panels {
		data := p.plot.DataCanvas(cells[i])
		cell := draw.Crop(cells[i], left-(data.Min.X-c.Min.X), (c.Max.X-data.Max.X)-right, 0, 0)
		data = p.plot.DataCanvas(cell)
		if f.equal {
			x, y, size := &p.plot.X, &p.plot.Y, data.Size()
			unit := max((x.Max-x.Min)/float64(size.X), (y.Max-y.Min)/float64(size.Y))
			widen(x, unit*float64(size.X))
			widen(y, unit*float64(size.Y))
		}
		p.plot.Draw(cell)
		if f.scale != nil {
			whole.Min = vg.Point{X: whole.Max.X - scaleWidth, Y: data.Min.Y}
			whole.Max.Y = data.Max.Y
			fitLabels(f.scale, whole)
			f.scale.Draw(whole)
		}
	}
}

func widen(axis *plot.Axis, length float64) {
	more := (length - (axis.Max - axis.Min)) / 2
	axis.Min, axis.Max = axis.Min-more, axis.Max+more
}

// fitLabels shortens labels that are longer than their axes. Otherwise the plot would shrink its
// data area to fit them.
func fitLabels(p *plot.Plot, c draw.Canvas) {
	x, y := p.X.Label.Text, p.Y.Label.Text
	p.X.Label.Text, p.Y.Label.Text = "", ""
	size := p.DataCanvas(c).Size()
	if x != "" {
		p.X.Label.Text = shorten(x, p.X.Label.TextStyle, size.X)
	}
	if y != "" {
		p.Y.Label.Text = shorten(y, p.Y.Label.TextStyle, 0.9*size.Y)
	}
}

// legend names the series above the data area, where it covers no data.
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
	legendFoot   = 4 // space between the legend and the panels
)

// rows arranges the entries in rows of the given width, shortens names that are longer than a row,
// and calls show for each entry.
func (l legend) rows(width vg.Length, show func(e entry, x vg.Length, row int)) {
	style := textStyle(textSize)
	x, row := vg.Length(0), 0
	for _, e := range l {
		e.name = shorten(clean(e.name), style, width-pictureWidth-pictureGap)
		its := pictureWidth + pictureGap + style.Width(e.name)
		if x > 0 && x+its > width {
			x, row = 0, row+1
		}
		show(e, x, row)
		x += its + entryGap
	}
}

// height returns the height of the legend at a width; 0 if the legend is empty.
func (l legend) height(width vg.Length) (h vg.Length) {
	l.rows(width, func(_ entry, _ vg.Length, row int) { h = vg.Length(row+1)*rowHeight + legendFoot })
	return h
}

// draw draws the legend at the top of c and returns its height, which is at most half of c, so that
// a figure with a given height has space for its data.
func (l legend) draw(c draw.Canvas) (h vg.Length) {
	style := textStyle(textSize)
	style.YAlign = draw.YCenter
	l.rows(c.Size().X, func(e entry, left vg.Length, row int) {
		if row > 0 && vg.Length(row+1)*rowHeight > c.Size().Y/2 {
			return
		}
		h = vg.Length(row+1)*rowHeight + legendFoot
		x, y := c.Min.X+left, c.Max.Y-(vg.Length(row)+0.5)*rowHeight
		e.picture.Thumbnail(&draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - rowHeight/2 + 2},
			Max: vg.Point{X: x + pictureWidth, Y: y + rowHeight/2 - 2},
		}})
		c.FillText(style, vg.Point{X: x + pictureWidth + pictureGap, Y: y}, e.name)
	})
	return h
}

// swatch is the legend entry of a line, with a mark in its middle unless mark is nil.
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
