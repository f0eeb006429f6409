package figure

import (
	"cmp"
	"image/color"
	"math"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cage-qat/cage/internal/safetext"
)

// Colors is the number of distinct colours in figures. Further series are distinguished by their
// marks and dashes.
const Colors = 7

// palette is that of Okabe and Ito ("Color Universal Design", 2008), which is suitable for all
// kinds of colour vision, with the darker colours first.
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

const (
	textSize  = 10 // points
	titleSize = 12
	tickSize  = 9

	lineWidth = 1.3 // points
	rawWidth  = 0.6
	axisWidth = 0.6
)

// dashes distinguishes solid lines once every colour has been used. The patterns differ from those
// of dashed and dotted lines, which have a meaning.
var dashes = [][]vg.Length{nil, {5, 1.6, 1.2, 1.6}, {5, 1.6, 1.2, 1.6, 1.2, 1.6}}

// runColor returns the colour of the i-th run, and runDashes its dash pattern.
func runColor(i int) color.NRGBA  { return palette[i%Colors] }
func runDashes(i int) []vg.Length { return dashes[i/Colors%len(dashes)] }

// faint returns a translucent colour, with an opacity of 28 %.
func faint(c color.NRGBA) color.NRGBA {
	c.A = 0x48
	return c
}

// shapes distinguishes series when printed without colours.
var shapes = [Colors]draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{},
}

// markOf returns the mark of the i-th series. When colours repeat, the shapes differ.
func markOf(i int) draw.GlyphStyle {
	const radius = 2.6 // points
	return draw.GlyphStyle{Color: runColor(i), Radius: radius, Shape: shapes[(i+i/Colors)%Colors]}
}

func lineStyle(c color.Color, width vg.Length, dash []vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width, Dashes: dash}
}

func textStyle(size vg.Length) draw.TextStyle {
	sans := font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	return draw.TextStyle{Color: axisColor, Font: sans, Handler: plot.DefaultTextHandler}
}

// newPlot returns an empty plot in the style of all figures, with grid lines across the axes named
// in lines ("xy" for both).
func newPlot(yLabel, lines string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Y.Label.Text = yLabel
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = textStyle(textSize).Font
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Label.Font = textStyle(tickSize).Font
		axis.Tick.Length = vg.Points(3)
		axis.LineStyle = lineStyle(axisColor, axisWidth, nil)
		axis.Tick.LineStyle = lineStyle(axisColor, axisWidth, nil)
		axis.Padding = 0
		axis.Tick.Marker = ticks{}
	}
	grid := plotter.NewGrid()
	grid.Vertical, grid.Horizontal = draw.LineStyle{}, draw.LineStyle{}
	if strings.Contains(lines, "x") {
		grid.Vertical = lineStyle(gridColor, axisWidth, nil)
	}
	if strings.Contains(lines, "y") {
		grid.Horizontal = lineStyle(gridColor, axisWidth, nil)
	}
	p.Add(grid)
	return p
}

type layerFunc func(draw.Canvas, *plot.Plot)

// Plot draws the layer.
func (f layerFunc) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

// clean converts text to a single line that every format can contain: characters that are not
// printable (XML forbids some of them) become spaces.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, safetext.Valid(s))
}

// shorten truncates a line so that it is no wider than width.
func shorten(s string, style draw.TextStyle, width vg.Length) string {
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

// nominal labels the positions 0, 1, 2, … of an axis with names, and returns the width of the
// widest one.
func nominal(axis *plot.Axis, names []string) (widest vg.Length) {
	const longest = 1.4 * vg.Inch
	var marks plot.ConstantTicks
	for i, name := range names {
		name = shorten(clean(name), axis.Tick.Label, longest)
		widest = max(widest, axis.Tick.Label.Width(name))
		// A tick with an empty label would be drawn as a minor tick.
		marks = append(marks, plot.Tick{Value: float64(i), Label: cmp.Or(name, " ")})
	}
	axis.Tick.Marker = marks
	axis.Tick.LineStyle.Color = color.Transparent // its length is the space between axis and names
	axis.Min, axis.Max = -0.5, float64(len(names))-0.5
	return widest
}

// nominalX labels the horizontal axis, which has the given width, with names. They are slanted if
// they would overlap.
func nominalX(axis *plot.Axis, names []string, width vg.Length) {
	if widest := nominal(axis, names); widest > 0.95*width/vg.Length(len(names)) {
		axis.Tick.Label.Rotation = math.Pi / 6
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = draw.XRight, draw.YCenter
	}
}
