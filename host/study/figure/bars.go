package figure

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars shows groups of bars, one bar for each series. Bars begin at zero, because their
// length is what is read. If they would all look alike (their ends are closer to each
// other than a quarter of their length), or if the axis is given a range without zero,
// the values are drawn as points instead.
type Bars struct {
	X, Y   Axis // of X, only the label is used
	Groups []string
	Series []BarSeries
	Labels string // verb for formatting the values above the bars, such as "%.2f"; empty: no values are written
}

// BarSeries is a series of bars, one for each group.
type BarSeries struct {
	Name  string // name in the legend; empty: it is not in the legend
	Bars  []Bar
	Color int // 1, 2, …: the n-th colour of all figures; 0: the one given by its place among the series
}

// Bar is a value, with an interval around it if it has one. A bar that is not
// finite is missing, and leaves a gap.
type Bar struct {
	Y           float64
	Minus, Plus float64 // how far the interval extends below and above Y; 0: not at all
	Absent      bool    // the group has neither a bar of this series nor a gap
}

// groupShare is the share of its place on the axis that a group of bars takes.
const groupShare = 0.8

func (b *Bars) compose(width vg.Length) (composition, error) {
	ends, whole := newSpan(), newSpan() // of the bars; with their intervals
	for _, s := range b.Series {
		for _, bar := range s.Bars[:min(len(s.Bars), len(b.Groups))] {
			if b.Y.drawable(bar.Y) && !bar.Absent {
				ends.add(b.Y, bar.Y)
				whole.addInterval(b.Y, bar.Y, bar.Minus, bar.Plus)
			}
		}
	}
	if ends.empty() {
		return nil, ErrNoData
	}
	dots := b.asDots(ends)
	if !dots && !b.Y.Log {
		whole.low, whole.high = min(whole.low, 0), max(whole.high, 0)
	}
	p := newBarePlot("")
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = lineStyle(gridColor, axisWidth, nil)
	p.Add(grid)
	b.Y.apply(&p.Y, whole)
	nominalX(&p.X, b.Groups, width-vg.Inch)
	p.X.Label.Text = clean(b.X.Label)
	p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { b.draw(c, p, dots) }))
	out := &single{plot: p}
	for i, s := range b.Series {
		if s.Name != "" {
			out.legend = append(out.legend, entry{s.Name, s.thumbnail(i, dots)})
		}
	}
	return out, nil
}

// asDots reports whether bars from zero would not show what the values are.
func (b *Bars) asDots(ends span) bool {
	switch {
	case b.Y.Log:
		return false
	case b.Y.hasRange():
		return b.Y.Min > 0 || b.Y.Max < 0
	}
	length := max(ends.high, -ends.low)
	return ends.low*ends.high > 0 && ends.high-ends.low < length/4 && ends.high > ends.low
}

func (s BarSeries) thumbnail(i int, dots bool) plot.Thumbnailer {
	if !dots {
		return area(func(c *draw.Canvas) { drawBar(*c, place(s.Color, i), c.Min.X+4, c.Max.X-4, c.Min.Y, c.Max.Y) })
	}
	mark := markOf(place(s.Color, i))
	return swatch{mark: &mark}
}

func (b *Bars) draw(c draw.Canvas, p *plot.Plot, dots bool) {
	x, y := p.Transforms(&c)
	at := heights(c, p)
	width := (x(1) - x(0)) * groupShare / vg.Length(len(b.Series))
	for g := range b.Groups {
		var places []int // of the series that have a bar, or a gap, in this group
		for i, s := range b.Series {
			if g < len(s.Bars) && !s.Bars[g].Absent {
				places = append(places, i)
			}
		}
		left := x(float64(g)) - width*vg.Length(len(places))/2
		for n, i := range places {
			s := b.Series[i]
			if b.Y.drawable(s.Bars[g].Y) {
				b.value(c, place(s.Color, i), s.Bars[g], left+width*vg.Length(n), width, at, dots)
			}
		}
	}
	if p.Y.Min < 0 && p.Y.Max > 0 {
		c.StrokeLine2(lineStyle(axisColor, axisWidth, nil), c.Min.X, y(0), c.Max.X, y(0))
	}
}

// value draws one bar or point, whose place begins at left.
func (b *Bars) value(c draw.Canvas, place int, bar Bar, left, width vg.Length, at func(float64) vg.Length, dots bool) {
	center, ink := left+width/2, color.Color(axisColor)
	if dots {
		ink = runColor(place)
		c.DrawGlyphNoClip(markOf(place), vg.Point{X: center, Y: at(bar.Y)})
	} else {
		drawBar(c, place, left+width*0.06, left+width*0.94, at(0), at(bar.Y))
	}
	low, high := at(bar.Y-reach(bar.Minus)), at(bar.Y+reach(bar.Plus))
	if bar.Minus != 0 || bar.Plus != 0 {
		errorBar(c, lineStyle(ink, barLine, nil), center, low, high)
	}
	if b.Labels != "" { // the number above the bar, if it fits
		style := textStyle(tickSize - 2)
		style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
		text := fmt.Sprintf(b.Labels, bar.Y)
		if style.Width(text) <= 1.4*width {
			c.FillText(style, vg.Point{X: center, Y: max(low, high, at(bar.Y)) + 2}, clean(text))
		}
	}
}

// drawBar draws one bar with an outline, by which neighbours are told apart in print. When
// the colours come again, bars have stripes: across, then along.
func drawBar(c draw.Canvas, place int, left, right, from, to vg.Length) {
	corners := []vg.Point{{X: left, Y: from}, {X: left, Y: to}, {X: right, Y: to}, {X: right, Y: from}}
	c.FillPolygon(runColor(place), corners)
	const stripe, gap = 1, 3 // points
	style := lineStyle(background, stripe, nil)
	low, high := min(from, to), max(from, to)
	switch place / Colors % 3 {
	case 1:
		for y := low + gap; y < high; y += gap + stripe {
			c.StrokeLine2(style, left, y, right, y)
		}
	case 2:
		for n, x := max(1, int((right-left)/(gap+stripe))), 0; x < n; x++ {
			at := left + (right-left)*(vg.Length(x)+0.5)/vg.Length(n)
			c.StrokeLine2(style, at, low, at, high)
		}
	}
	c.StrokeLines(lineStyle(axisColor, 0.4, nil), append(corners, corners[0]))
}
