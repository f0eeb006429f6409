package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// legend says what the series are, above the data area, where it hides nothing.
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

// draw draws the legend in rows at the top of c and returns the height it took.
func (l legend) draw(c draw.Canvas) vg.Length {
	style := textStyle(textSize)
	style.YAlign = draw.YCenter
	x, y := c.Min.X, c.Max.Y-rowHeight/2
	for _, e := range l {
		name := fit(clean(e.name), style, c.Size().X-pictureWidth-pictureGap)
		width := pictureWidth + pictureGap + style.Width(name)
		if x > c.Min.X && x+width > c.Max.X {
			x, y = c.Min.X, y-rowHeight
		}
		e.picture.Thumbnail(&draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - rowHeight/2 + 2}, Max: vg.Point{X: x + pictureWidth, Y: y + rowHeight/2 - 2},
		}})
		c.FillText(style, vg.Point{X: x + pictureWidth + pictureGap, Y: y}, name)
		x += width + entryGap
	}
	return c.Max.Y - y + rowHeight/2 + legendFoot
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
