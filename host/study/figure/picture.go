package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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

// usualLegend is the height of a legend up to which a figure of one plot is no higher than others.
const usualLegend = 4*rowHeight + legendFoot

func (s *single) height(_ string, width vg.Length) vg.Length {
	return defaultHeight + max(0, s.legend.height(width)-usualLegend)
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
