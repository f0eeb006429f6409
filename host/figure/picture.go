package figure

import (
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Picture is one of the kinds of figures that Draw knows: *Chart, *Bars or *Heat.
type Picture interface {
	// compose makes the parts of a figure of the given width, without a layout. It
	// returns ErrNoData when there is nothing to draw.
	compose(width vg.Length) (*composition, error)
}

// composition is a figure before it is laid out.
type composition struct {
	plot   *plot.Plot
	legend legend
	scale  *plot.Plot // the colour scale at the right; nil: none
	equal  bool       // one unit is as long in x as in y
}

const (
	defaultHeight = 3.6 * vg.Inch
	scaleWidth    = 0.75 * vg.Inch // the colour scale with its numbers and label
	scaleGap      = 0.15 * vg.Inch
)

// Save draws a picture to a file, atomically. The ending of its name, .png or .svg,
// chooses the format.
func Save(path string, p Picture, o Options) error {
	return save(path, func(w io.Writer, format Format) error { return Draw(w, format, p, o) })
}

// Draw draws a picture. It returns ErrNoData when none of its values is finite.
func Draw(w io.Writer, format Format, p Picture, o Options) error {
	width, height := defaultWidth, defaultHeight
	if o.Width > 0 {
		width = vg.Length(o.Width) * vg.Inch
	}
	if o.Height > 0 {
		height = vg.Length(o.Height) * vg.Inch
	}
	parts, err := p.compose(width)
	if err != nil {
		return err
	}
	return render(w, format, width, height, func(c draw.Canvas) { parts.lay(c, clean(o.Title)) })
}

// lay draws the title, below it the legend, and the plot in the rest.
func (parts *composition) lay(c draw.Canvas, title string) {
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if title != "" {
		style := textStyle(titleSize)
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		title = fit(title, style, c.Size().X)
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, title)
		c.Max.Y -= titleHeight
	}
	if len(parts.legend) > 0 {
		c.Max.Y -= parts.legend.draw(c)
	}
	c.Max.Y -= vg.Points(3) // room for half of a number at the upper end
	scale := c
	if parts.scale != nil {
		c.Max.X -= scaleWidth + scaleGap
	}
	fitLabels(parts.plot, c)
	if parts.equal {
		equalize(parts.plot, parts.plot.DataCanvas(c).Size())
	}
	parts.plot.Draw(c)
	if parts.scale != nil {
		data := parts.plot.DataCanvas(c)
		scale.Min = vg.Point{X: scale.Max.X - scaleWidth, Y: data.Min.Y}
		scale.Max.Y = data.Max.Y
		fitLabels(parts.scale, scale)
		parts.scale.Draw(scale)
	}
}

// fitLabels shortens labels that are longer than their axes, for which the plot would
// make room at the cost of its data area.
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
