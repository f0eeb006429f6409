package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/brewer"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Heat shows a matrix as a heat map: each cell shows its value, and has a colour from light (low)
// to dark (high). The scale is also readable when printed in grey.
type Heat struct {
	X, Y          Axis // only Label is used
	Columns, Rows []string
	// Values are indexed [row][column], with row 0 at the top. Values that are not finite are missing.
	Values [][]float64
	Format string // format of the values; empty: "%.3g"
	Scale  string // label of the colour scale
	Log    bool   // logarithmic colour scale; values that are not positive are missing
}

func (h *Heat) compose(width vg.Length) *composition {
	values, axis := newSpan(), Axis{Log: h.Log}
	for row := range h.Rows {
		for column := range h.Columns {
			values.add(axis, h.at(row, column))
		}
	}
	switch {
	case values.empty():
		return nil
	case values.single() && h.Log:
		values.low, values.high = values.low/2, values.high*2
	case values.single():
		half := 0.5*math.Abs(values.low) + 1e-9
		values.low, values.high = values.low-half, values.high+half
	}
	p := newPlot(clean(h.Y.Label), "")
	nominalX(&p.X, h.Columns, width-scaleWidth-scaleGap-vg.Inch)
	p.X.Label.Text = clean(h.X.Label)
	rows := slices.Clone(h.Rows)
	slices.Reverse(rows)
	nominal(&p.Y, rows)
	p.X.LineStyle.Width, p.Y.LineStyle.Width = 0, 0
	p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { h.draw(c, p, values) }))

	scale := newPlot(clean(h.Scale), "")
	scale.HideX()
	scale.X.Min, scale.X.Max = 0, 1
	scale.Y.Min, scale.Y.Max = values.low, values.high
	if h.Log {
		scale.Y.Scale, scale.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	}
	scale.Y.LineStyle.Width = 0
	scale.Add(layerFunc(func(c draw.Canvas, _ *plot.Plot) {
		const steps = 64
		height := c.Size().Y / steps
		for i := range steps {
			step := c.Rectangle
			step.Min.Y += vg.Length(i) * height
			step.Max.Y = min(step.Min.Y+1.2*height, c.Max.Y) // overlaps the next, so that no gap shows
			c.SetColor(ramp((float64(i) + 0.5) / steps))
			c.Fill(step.Path())
		}
	}))
	return &composition{panels: []panel{{p, plotHeight}}, scale: scale}
}

// at returns a value of the matrix, or NaN if it is missing.
func (h *Heat) at(row, column int) float64 {
	if row < len(h.Values) && column < len(h.Values[row]) {
		return h.Values[row][column]
	}
	return math.NaN()
}

func (h *Heat) draw(c draw.Canvas, p *plot.Plot, s span) {
	x, y := p.Transforms(&c)
	style := textStyle(tickSize)
	style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
	for row := range h.Rows {
		for column := range h.Columns {
			cx, cy := float64(column), float64(len(h.Rows)-1-row)
			cell := vg.Rectangle{
				Min: vg.Point{X: x(cx - 0.5), Y: y(cy - 0.5)},
				Max: vg.Point{X: x(cx + 0.5), Y: y(cy + 0.5)},
			}
			v, text, fill, share := h.at(row, column), "–", color.NRGBA{0xF2, 0xF2, 0xF2, 0xFF}, 0.0
			if (Axis{Log: h.Log}).drawable(v) {
				share = (v - s.low) / (s.high - s.low)
				if h.Log {
					share = math.Log(v/s.low) / math.Log(s.high/s.low)
				}
				fill, text = ramp(share), clean(fmt.Sprintf(cmp.Or(h.Format, "%.3g"), v))
			}
			c.SetColor(fill)
			c.Fill(cell.Path())
			c.SetLineStyle(lineStyle(background, 1, nil))
			c.Stroke(cell.Path())
			style.Color = textOn(share)
			if style.Width(text) <= cell.Size().X {
				c.FillText(style, vg.Point{X: x(cx), Y: y(cy)}, text)
			}
		}
	}
}

// anchors holds the colours of ColorBrewer's YlGnBu from light to dark, a scale that is suitable
// for all kinds of colour vision.
var anchors = func() []color.Color {
	p, err := brewer.GetPalette(brewer.TypeSequential, "YlGnBu", 9)
	if err != nil {
		panic(err) // it is part of the library
	}
	return p.Colors()
}()

// ramp returns the colour at a fraction of the scale, interpolated between the anchors.
func ramp(share float64) color.NRGBA {
	if math.IsNaN(share) { // from overflow, if values are extreme
		share = 0
	}
	at := min(max(share, 0), 1) * float64(len(anchors)-1)
	i := min(int(at), len(anchors)-2)
	a := color.NRGBAModel.Convert(anchors[i]).(color.NRGBA)
	b := color.NRGBAModel.Convert(anchors[i+1]).(color.NRGBA)
	mix := func(a, b uint8) uint8 {
		return uint8(math.Round(float64(a) + (at-float64(i))*(float64(b)-float64(a))))
	}
	return color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 0xFF}
}

// textOn returns the colour of text on the colour at a fraction of the scale.
func textOn(share float64) color.Color {
	if share > 0.68 {
		return background
	}
	return color.Black
}
