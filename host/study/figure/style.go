package figure

import (
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
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

// runColor and runDashes are the style of the i-th run.
func runColor(i int) color.NRGBA    { return palette[i%Colors] }
func runDashes(i int) []vg.Length   { return dashes[i/Colors%len(dashes)] }
func validationDashes() []vg.Length { return []vg.Length{4, 2} }

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
	p := bare(yLabel)
	grid := plotter.NewGrid()
	grid.Vertical = lineStyle(gridColor, axisWidth, nil)
	grid.Horizontal = grid.Vertical
	p.Add(grid)
	return p
}

// bare returns an empty plot without a grid.
func bare(yLabel string) *plot.Plot {
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

// mostTicks is more than six steps have.
const mostTicks = 10

// Ticks returns the labelled marks of an axis.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step, digits := niceStep((high - low) / 6)
	var out []plot.Tick
	first := math.Ceil(low/step - 1e-9)
	for i := range mostTicks { // an i of 2⁵³ and more would not grow
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

// formatTick writes a mark with so many decimals, or where these are many with as many digits as tell it from the next,
// a step further.
func formatTick(x, step float64, digits int) string {
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if digits > 6 || math.Abs(x) >= 1e7 {
		apart := 2 + int(math.Ceil(math.Log10(max(1, math.Abs(x)/step))))
		s = strconv.FormatFloat(x, 'g', min(max(4, apart), 17), 64)
	}
	return strings.ReplaceAll(s, "-", "−")
}
