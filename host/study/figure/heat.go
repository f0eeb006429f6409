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

// Heat shows a matrix: its values are written into the cells, which are coloured by a
// scale from light (low) to dark (high) that also works when printed in grey.
type Heat struct {
	X, Y          Axis // their labels
	Columns, Rows []string
	Values        [][]float64 // [row][column], the first row on top; a value that is not finite is missing
	Format        string      // verb for formatting the values; empty: "%.3g"
	Scale         string      // label of the colour scale
	Log           bool        // a logarithmic colour scale; values that are not positive are missing
}

func (h *Heat) compose(width vg.Length) (composition, error) {
	values, axis := newSpan(), Axis{Log: h.Log}
	for row := range h.Rows {
		for column := range h.Columns {
			values.add(axis, h.at(row, column))
		}
	}
	if values.empty() {
		return nil, ErrNoData
	}
	switch {
	case values.single() && h.Log:
		values.low, values.high = values.low/2, values.high*2
	case values.single():
		values.low, values.high = values.low-0.5*math.Abs(values.low)-1e-9, values.high+0.5*math.Abs(values.high)+1e-9
	}
	p := newBarePlot(clean(h.Y.Label))
	nominalX(&p.X, h.Columns, width-scaleWidth-scaleGap-vg.Inch)
	p.X.Label.Text = clean(h.X.Label)
	rows := slices.Clone(h.Rows)
	slices.Reverse(rows)
	nominal(&p.Y, rows)
	p.X.LineStyle.Width, p.Y.LineStyle.Width = 0, 0
	p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { h.cells(c, p, values) }))
	return &single{plot: p, scale: h.colorScale(values)}, nil
}

// at is a value, NaN where the matrix has none.
func (h *Heat) at(row, column int) float64 {
	if row < len(h.Values) && column < len(h.Values[row]) {
		return h.Values[row][column]
	}
	return math.NaN()
}

// share is the place of a value on the scale, from 0 to 1.
func (h *Heat) share(v float64, s span) float64 {
	if h.Log {
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

func (h *Heat) cells(c draw.Canvas, p *plot.Plot, s span) {
	x, y := p.Transforms(&c)
	style := textStyle(tickSize)
	style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
	format := cmp.Or(h.Format, "%.3g")
	for row := range h.Rows {
		for column := range h.Columns {
			cx, cy := float64(column), float64(len(h.Rows)-1-row)
			cell := vg.Rectangle{Min: vg.Point{X: x(cx - 0.5), Y: y(cy - 0.5)}, Max: vg.Point{X: x(cx + 0.5), Y: y(cy + 0.5)}}
			v, text, fill := h.at(row, column), "–", color.NRGBA{0xF2, 0xF2, 0xF2, 0xFF}
			if (Axis{Log: h.Log}).drawable(v) {
				fill = ramp(h.share(v, s))
				text = clean(fmt.Sprintf(format, v))
			}
			c.SetColor(fill)
			c.Fill(cell.Path())
			c.StrokeLines(lineStyle(background, 1, nil), append(corners(cell), cell.Min))
			style.Color = textOn(fill)
			if style.Width(text) <= cell.Size().X {
				c.FillText(style, vg.Point{X: x(cx), Y: y(cy)}, text)
			}
		}
	}
}

func corners(r vg.Rectangle) []vg.Point {
	return []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
}

func (h *Heat) colorScale(s span) *plot.Plot {
	p := newBarePlot(clean(h.Scale))
	p.HideX()
	p.X.Min, p.X.Max = 0, 1
	p.Y.Min, p.Y.Max = s.low, s.high
	if h.Log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	}
	p.Y.LineStyle.Width = 0
	p.Add(layerFunc(func(c draw.Canvas, _ *plot.Plot) {
		const steps = 64
		height := (c.Max.Y - c.Min.Y) / steps
		for i := range steps {
			c.SetColor(ramp((float64(i) + 0.5) / steps))
			low := c.Min.Y + vg.Length(i)*height
			c.Fill(vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: low}, Max: vg.Point{X: c.Max.X, Y: min(low+1.2*height, c.Max.Y)}}.Path())
		}
	}))
	return p
}

// anchors are the colours of ColorBrewer's YlGnBu, a scale that people with any kind
// of colour vision can read, between which the scale is interpolated.
var anchors = func() []color.NRGBA {
	p, err := brewer.GetPalette(brewer.TypeSequential, "YlGnBu", 9)
	if err != nil {
		panic(err) // it is part of the library
	}
	var out []color.NRGBA
	for _, c := range p.Colors() {
		out = append(out, color.NRGBAModel.Convert(c).(color.NRGBA))
	}
	if luminance(out[0]) < luminance(out[len(out)-1]) {
		slices.Reverse(out)
	}
	return out
}()

// ramp is the colour of a share of the scale.
func ramp(share float64) color.NRGBA {
	if math.IsNaN(share) { // of numbers at the ends of what can be written
		share = 0
	}
	at := min(max(share, 0), 1) * float64(len(anchors)-1)
	i := min(int(at), len(anchors)-2)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + (at-float64(i))*(float64(b)-float64(a)))) }
	a, b := anchors[i], anchors[i+1]
	return color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 0xFF}
}

// luminance is the relative luminance of the Web Content Accessibility Guidelines.
func luminance(c color.NRGBA) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

// textOn is black or white, whichever stands out more on c.
func textOn(c color.NRGBA) color.Color {
	if l := luminance(c); (l+0.05)/0.05 < 1.05/(l+0.05) {
		return background
	}
	return color.NRGBA{0, 0, 0, 0xFF}
}
