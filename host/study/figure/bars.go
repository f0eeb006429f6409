package figure

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars shows groups of bars, with one bar per series. Bars begin at zero, because readers compare
// their lengths. If that would make them look alike (their ends differ by less than a quarter of
// their length), the values are drawn as points instead.
type Bars struct {
	X, Y   Axis // of X, only Label is used
	Groups []string
	Series []BarSeries
	Labels string // format of the values above the bars, such as "%.2f"; empty: no values are written
}

// BarSeries is a series of bars, one for each group.
type BarSeries struct {
	Name string // name in the legend; empty: not in the legend
	Bars []Bar
}

// Bar is a value, with an interval around it if Minus or Plus is not 0. A value that is not finite
// counts as missing and leaves a gap.
type Bar struct {
	Y           float64
	Minus, Plus float64 // lengths of the interval below and above Y; 0: none
	Absent      bool    // the group has neither a bar of this series nor a gap
}

// groupShare is the fraction of a group's width that its bars take up.
const groupShare = 0.8

func (b *Bars) compose(width vg.Length) *composition {
	ends, whole := newSpan(), newSpan() // of the ends of the bars; the same with their intervals
	for _, s := range b.Series {
		for _, bar := range s.Bars[:min(len(s.Bars), len(b.Groups))] {
			if b.Y.drawable(bar.Y) && !bar.Absent {
				ends.add(b.Y, bar.Y)
				whole.add(b.Y, bar.Y, bar.Y-reach(bar.Minus), bar.Y+reach(bar.Plus))
			}
		}
	}
	if ends.empty() {
		return nil
	}
	length := max(ends.high, -ends.low)
	dots := !b.Y.Log && ends.low*ends.high > 0 && ends.high-ends.low < length/4 && ends.high > ends.low
	if !dots && !b.Y.Log {
		whole.low, whole.high = min(whole.low, 0), max(whole.high, 0)
	}
	p := newPlot("", "y")
	b.Y.apply(&p.Y, whole)
	nominalX(&p.X, b.Groups, width-vg.Inch)
	p.X.Label.Text = clean(b.X.Label)
	p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { b.draw(c, p, dots) }))
	out := &composition{panels: []panel{{p, plotHeight}}}
	for i, s := range b.Series {
		if s.Name == "" {
			continue
		}
		var picture plot.Thumbnailer = barPicture(i)
		if mark := markOf(i); dots {
			picture = swatch{mark: &mark}
		}
		out.legend = append(out.legend, entry{s.Name, picture})
	}
	return out
}

func (b *Bars) draw(c draw.Canvas, p *plot.Plot, dots bool) {
	x, y := p.Transforms(&c)
	at := heights(c, p)
	width := (x(1) - x(0)) * groupShare / vg.Length(len(b.Series))
	for g := range b.Groups {
		var present []int // the series that have a bar, or a gap, in this group
		for i, s := range b.Series {
			if g < len(s.Bars) && !s.Bars[g].Absent {
				present = append(present, i)
			}
		}
		left := x(float64(g)) - width*vg.Length(len(present))/2
		for n, i := range present {
			bar := b.Series[i].Bars[g]
			if !b.Y.drawable(bar.Y) {
				continue
			}
			center, ink := left+width*(vg.Length(n)+0.5), color.Color(axisColor)
			if dots {
				ink = runColor(i)
				c.DrawGlyphNoClip(markOf(i), vg.Point{X: center, Y: at(bar.Y)})
			} else {
				drawBar(c, i, center-0.44*width, center+0.44*width, at(0), at(bar.Y))
			}
			low, high := at(bar.Y-reach(bar.Minus)), at(bar.Y+reach(bar.Plus))
			if bar.Minus != 0 || bar.Plus != 0 {
				from, to := vg.Point{X: center, Y: low}, vg.Point{X: center, Y: high}
				errorBar(c, lineStyle(ink, barLine, nil), from, to)
			}
			if b.Labels != "" { // the number above the bar, if it fits
				style := textStyle(tickSize - 2)
				style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
				if text := fmt.Sprintf(b.Labels, bar.Y); style.Width(text) <= 1.4*width {
					c.FillText(style, vg.Point{X: center, Y: max(low, high, at(bar.Y)) + 2}, clean(text))
				}
			}
		}
	}
	if p.Y.Min < 0 && p.Y.Max > 0 {
		c.StrokeLine2(lineStyle(axisColor, axisWidth, nil), c.Min.X, y(0), c.Max.X, y(0))
	}
}

// drawBar draws a bar with an outline, so that adjacent bars are separated in print.
func drawBar(c draw.Canvas, series int, left, right, from, to vg.Length) {
	corners := []vg.Point{{X: left, Y: from}, {X: left, Y: to}, {X: right, Y: to}, {X: right, Y: from}}
	c.FillPolygon(runColor(series), corners)
	c.StrokeLines(lineStyle(axisColor, 0.4, nil), append(corners, corners[0]))
}

// barPicture is the legend entry of a series.
type barPicture int

// Thumbnail draws the bar.
func (b barPicture) Thumbnail(c *draw.Canvas) {
	drawBar(*c, int(b), c.Min.X+4, c.Max.X-4, c.Min.Y, c.Max.Y)
}
