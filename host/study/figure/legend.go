package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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

// placed is an entry with its place: how far from the left, and in which row.
type placed struct {
	entry
	x   vg.Length
	row int
}

// place arranges the entries in rows of the given width, their names shortened to it.
func (l legend) place(width vg.Length) []placed {
	style := textStyle(textSize)
	out := make([]placed, len(l))
	x, row := vg.Length(0), 0
	for i, e := range l {
		e.name = fit(clean(e.name), style, width-pictureWidth-pictureGap)
		its := pictureWidth + pictureGap + style.Width(e.name)
		if x > 0 && x+its > width {
			x, row = 0, row+1
		}
		out[i] = placed{e, x, row}
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
