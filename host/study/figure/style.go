package figure

import (
	"cmp"
	"image/color"
	"math"
	"strconv"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colors is the number of different colours in figures. Further series are told apart by
// their marks and dashes, and further bars by stripes.
const Colors = 7

// palette is the one of Okabe and Ito ("Color Universal Design", 2008), which people
// with any kind of colour vision can tell apart, the darker colours first.
var palette = [Colors]color.NRGBA{
	{0x00, 0x72, 0xB2, 0xFF}, // blue
	{0xD5, 0x5E, 0x00, 0xFF}, // vermillion
	{0x00, 0x9E, 0x73, 0xFF}, // bluish green
	{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
	{0xE6, 0x9F, 0x00, 0xFF}, // orange
	{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
	{0x00, 0x00, 0x00, 0xFF}, // black
}

var (
	background = color.NRGBA{0xFF, 0xFF, 0xFF, 0xFF}
	gridColor  = color.NRGBA{0xE4, 0xE4, 0xE4, 0xFF}
	axisColor  = color.NRGBA{0x40, 0x40, 0x40, 0xFF}
)

// rawAlpha makes the unsmoothed curve faint: 28 %.
const rawAlpha = 0x48

const (
	textSize  = 10 // points
	titleSize = 12
	tickSize  = 9

	lineWidth = 1.3 // points
	rawWidth  = 0.6
	axisWidth = 0.6

	legendInset = 6 // points between a legend and the edge of its panel
)

// dashes tell solid lines apart once every colour has been used. They look unlike the
// dashed and dotted lines that have a meaning.
var dashes = [][]vg.Length{nil, {5, 1.6, 1.2, 1.6}, {5, 1.6, 1.2, 1.6, 1.2, 1.6}}

var validationDashes = []vg.Length{4, 2}

// runColor and runDashes are the style of the i-th run.
func runColor(i int) color.NRGBA  { return palette[i%Colors] }
func runDashes(i int) []vg.Length { return dashes[i/Colors%len(dashes)] }

func faint(c color.NRGBA) color.NRGBA {
	c.A = rawAlpha
	return c
}

func lineStyle(c color.Color, width vg.Length, dash []vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width, Dashes: dash}
}

func sans(size vg.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

// newPlot returns an empty plot with a grid, in the style of all figures.
func newPlot(yLabel string) *plot.Plot {
	p := newBarePlot(yLabel)
	grid := plotter.NewGrid()
	grid.Vertical = lineStyle(gridColor, axisWidth, nil)
	grid.Horizontal = grid.Vertical
	p.Add(grid)
	return p
}

func newBarePlot(yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	handler := newTypesetter()
	p.TextHandler = handler
	p.Title.TextStyle.Font, p.Title.TextStyle.Handler = sans(titleSize), handler
	p.Title.Padding = vg.Points(6)
	p.Legend.TextStyle.Font, p.Legend.TextStyle.Handler = sans(textSize), handler
	p.Legend.Padding = vg.Points(2)
	p.Legend.ThumbnailWidth = vg.Points(22)
	p.Legend.Top = true
	p.Legend.YOffs = -legendInset
	p.Y.Label.Text = yLabel
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Handler = sans(textSize), handler
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Label.Font, axis.Tick.Label.Handler = sans(tickSize), handler
		axis.Tick.Length = vg.Points(3)
		axis.LineStyle = lineStyle(axisColor, axisWidth, nil)
		axis.Tick.LineStyle = lineStyle(axisColor, axisWidth, nil)
		axis.Padding = 0
		axis.Tick.Marker = ticks{}
	}
	return p
}

// ticks places marks at round numbers and labels them without an exponent where
// that is readable. Unlabelled is for a panel that shares the axis below it.
type ticks struct{ unlabelled bool }

// maxTicks is more than six steps have.
const maxTicks = 10

// Ticks returns the labelled marks of an axis.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step, digits := niceStep((high - low) / 6)
	var out []plot.Tick
	first := math.Ceil(low/step - 1e-9)
	for i := range maxTicks { // an i of 2⁵³ and more would not grow
		value := (first + float64(i)) * step
		if !(value <= high+step*1e-9) {
			break
		}
		label := " " // a mark without any label is drawn as a minor one
		if !t.unlabelled {
			label = formatTick(value+0, step, digits) // +0 turns −0 into 0
		}
		out = append(out, plot.Tick{Value: value, Label: label})
	}
	return out
}

// niceStep is the smallest of 1, 2, 2.5 and 5 times a power of ten that is at
// least x, with the decimals that its multiples need.
func niceStep(x float64) (step float64, digits int) {
	if !(x > 0) {
		return 1, 0
	}
	exponent := math.Floor(math.Log10(x))
	power := math.Pow(10, exponent)
	digits = max(0, -int(exponent))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power < x*(1-1e-9) {
			continue
		}
		if m == 2.5 {
			digits = max(0, 1-int(exponent))
		}
		return m * power, digits
	}
	return 10 * power, max(0, -int(exponent)-1)
}

// formatTick writes a mark with so many decimals, or where these are many with as many digits as
// tell it from the next, a step further.
func formatTick(x, step float64, digits int) string {
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if digits > 6 || math.Abs(x) >= 1e7 {
		apart := 2 + int(math.Ceil(math.Log10(max(1, math.Abs(x)/step))))
		s = strconv.FormatFloat(x, 'g', min(max(4, apart), 17), 64)
	}
	return strings.ReplaceAll(s, "-", "−")
}

// clean makes any text a line that every format can hold: what cannot be printed
// (XML has no place for some of it) becomes a space.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func textStyle(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Color: axisColor, Font: sans(size), Handler: newTypesetter()}
}

// fit shortens a line until it is no wider than width.
func fit(s string, style draw.TextStyle, width vg.Length) string {
	runes := []rune(s)
	for n := len(runes); n > 0; n-- {
		if n < len(runes) {
			s = strings.TrimRight(string(runes[:n]), " ") + "…"
		}
		if style.Width(s) <= width {
			return s
		}
	}
	return "…"
}

// nominal gives the places 0, 1, 2, … of an axis names, and returns the width of the
// widest.
func nominal(axis *plot.Axis, names []string) (widest vg.Length) {
	const longest = 1.4 * vg.Inch
	var marks plot.ConstantTicks
	for i, name := range names {
		name = fit(clean(name), axis.Tick.Label, longest)
		widest = max(widest, axis.Tick.Label.Width(name))
		// A mark without any label would be drawn as a minor one.
		marks = append(marks, plot.Tick{Value: float64(i), Label: cmp.Or(name, " ")})
	}
	axis.Tick.Marker = marks
	axis.Tick.LineStyle.Color = color.Transparent // its length is the distance of the names
	axis.Min, axis.Max = -0.5, float64(len(names))-0.5
	return widest
}

// nominalX gives the horizontal axis names, upright where they have room and slanted
// otherwise. Width is what they share.
func nominalX(axis *plot.Axis, names []string, width vg.Length) {
	if widest := nominal(axis, names); widest > 0.95*width/vg.Length(len(names)) {
		axis.Tick.Label.Rotation = math.Pi / 6
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = draw.XRight, draw.YCenter
	}
}

// typesetter draws superscripts as small raised digits of the font: the characters
// themselves (¹ and ² apart) are missing in most fonts, in part or all, and where they
// come from another font an exponent looks like two.
type typesetter struct{ text.Handler }

func newTypesetter() typesetter { return typesetter{plot.DefaultTextHandler} }

const (
	raisedSize  = 0.7  // of the size of the text
	raisedShift = 0.36 // of it above the line
)

// plain are the digits and signs of superscripts.
var plain = map[rune]rune{
	'⁰': '0', '¹': '1', '²': '2', '³': '3', '⁴': '4', '⁵': '5', '⁶': '6', '⁷': '7', '⁸': '8', '⁹': '9',
	'⁻': '−', '⁺': '+',
}

// run is a stretch of a line of text.
type run struct {
	text   string
	raised bool
}

// runs splits a line, the superscripts replaced by what is to be raised.
func runs(line string) []run {
	var out []run
	for _, r := range line {
		p, raised := plain[r]
		if raised {
			r = p
		}
		if len(out) == 0 || out[len(out)-1].raised != raised {
			out = append(out, run{raised: raised})
		}
		out[len(out)-1].text += string(r)
	}
	return out
}

func (t typesetter) face(r run, f font.Font) font.Face {
	if r.raised {
		f.Size *= raisedSize
	}
	return t.Cache().Lookup(f, f.Size)
}

// Box implements [text.Handler].
func (t typesetter) Box(line string, f font.Font) (width, height, depth vg.Length) {
	extents := t.Extents(f)
	for _, r := range runs(line) {
		face := t.face(r, f)
		width += face.Width(r.text)
	}
	return width, extents.Ascent, extents.Descent
}

// Draw implements [text.Handler] for text of one line.
func (t typesetter) Draw(c vg.Canvas, line string, s text.Style, at vg.Point) {
	if line = strings.TrimRight(line, "\n"); line == "" {
		return
	}
	c.SetColor(s.Color)
	if s.Rotation != 0 {
		c.Push()
		defer c.Pop()
		c.Translate(at)
		c.Rotate(s.Rotation)
		at = vg.Point{}
	}
	// The alignment is the share of the box that is to the left of and below the point.
	extents := t.Extents(s.Font)
	at.X += vg.Length(s.XAlign) * s.Width(line)
	at.Y += vg.Length(s.YAlign)*s.Height(line) + s.Font.Size - extents.Ascent
	for _, r := range runs(line) {
		face, y := t.face(r, s.Font), at.Y
		if r.raised {
			y += raisedShift * s.Font.Size
		}
		c.FillString(face, vg.Point{X: at.X, Y: y}, r.text)
		at.X += face.Width(r.text)
	}
}
