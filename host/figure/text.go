package figure

import (
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

// nominal gives the horizontal axis names, upright where they have room and
// slanted otherwise. Width is what they share.
func nominal(axis *plot.Axis, list []string, width vg.Length) {
	const (
		longest = 1.4 * vg.Inch
		slant   = math.Pi / 6
	)
	shown := make(names, len(list))
	widest := vg.Length(0)
	for i, name := range list {
		shown[i] = fit(clean(name), axis.Tick.Label, longest)
		widest = max(widest, axis.Tick.Label.Width(shown[i]))
	}
	axis.Tick.Marker = shown
	axis.Tick.LineStyle.Color = color.Transparent // its length is the distance of the names
	axis.Min, axis.Max = -0.5, float64(len(list))-0.5
	if widest > 0.95*width/vg.Length(len(list)) {
		axis.Tick.Label.Rotation = slant
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = draw.XRight, draw.YCenter
	}
}
