package figure

import (
	"cmp"
	"image/color"
	"math"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
