package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cage-qat/cage/internal/lists"
)

// Chart shows series of points in the plane: curves with bands, measurements with error bars and
// fitted lines, or trajectories.
type Chart struct {
	X, Y   Axis
	Series []Series // each is drawn on top of the previous ones
	Equal  bool     // use the same scale for x and y; for linear axes
}

// Line is the style of the line through the points of a series.
type Line int

// Styles of lines.
const (
	NoLine Line = iota
	Solid
	Dashed
	Dotted
	Varied // a pattern that depends on the index of the series, so that overlapping lines differ
)

// Series is a list of points that belong together, such as a curve.
type Series struct {
	Name   string  // name in the legend; empty: not in the legend
	Points []Point // connected in this order; a point that cannot be drawn on the axes breaks the line
	Line   Line
	Faint  bool // draw the line thin and translucent
	Marks  bool // draw a mark at each point, with a shape that depends on the colour
	Band   bool // draw the intervals of the points as a shaded band instead of error bars
	Ends   bool // mark where the line begins (a ring) and ends (a disc)
	Color  int  // 1, 2, …: the n-th colour of all figures; 0: the one of the index of the series
	Key    Line // for a series without a line: the line beside its mark in the legend
}

// Point is a point, with an interval around Y if Minus or Plus is not 0.
type Point struct {
	X, Y        float64
	Minus, Plus float64 // lengths of the interval below and above Y; 0: none
	Across      float64 // length of the interval around X to each side; not used in bands
}

func (c *Chart) compose(vg.Length) *composition {
	x, y := c.spans()
	if x.empty() || y.empty() {
		return nil
	}
	p := newPlot("", "xy")
	out := &composition{panels: []panel{{p, plotHeight}}, equal: c.Equal && !c.X.Log && !c.Y.Log}
	c.X.apply(&p.X, x)
	c.Y.apply(&p.Y, y)
	p.Add(layerFunc(c.draw))
	for i, s := range c.Series {
		if s.Name != "" {
			out.legend = append(out.legend, entry{s.Name, s.thumbnail(s.index(i))})
		}
	}
	return out
}

// spans returns the ranges of the drawn values. On a logarithmic axis, a band that extends close to
// zero is cut off; otherwise it would leave no space for the curves.
func (c *Chart) spans() (x, y span) {
	const nearZero = 0.25 // a band does not extend the axis below this fraction of the value
	x, y = newSpan(), newSpan()
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !c.X.drawable(p.X) || !c.Y.drawable(p.Y) {
				continue
			}
			minus, across := reach(p.Minus), reach(p.Across)
			if c.Y.Log && s.Band {
				minus = min(minus, (1-nearZero)*p.Y)
			}
			x.add(c.X, p.X, p.X-across, p.X+across)
			y.add(c.Y, p.Y, p.Y-minus, p.Y+reach(p.Plus))
		}
	}
	return x, y
}

// Span returns the range of the vertical axis if the chart is drawn alone; ok is false if the chart
// has no points.
func (c *Chart) Span() (low, high float64, ok bool) {
	_, y := c.spans()
	if y.empty() {
		return 0, 0, false
	}
	var axis plot.Axis
	c.Y.apply(&axis, y)
	return axis.Min, axis.Max, true
}

// index returns the index, from 0, of the i-th series' colour and mark.
func (s Series) index(i int) int {
	if s.Color > 0 {
		return s.Color - 1
	}
	return i
}

// patterns holds the dash patterns of varied lines. There is one more than colours, so that more
// than seven series can be distinguished. All but the first have gaps that show the lines below.
var patterns = [Colors + 1][]vg.Length{
	nil, {6, 2.5}, {2, 1.8}, {7, 2, 2, 2}, {12, 4}, {3, 4}, {7, 2, 2, 2, 2, 2}, {14, 3, 3, 3},
}

// style returns the line style of the series with the given index. Dashes distinguish series of the
// same colour.
func (l Line) style(index int) draw.LineStyle {
	pattern := map[Line][]vg.Length{
		Solid: runDashes(index), Dashed: {5, 3}, Dotted: {1.2, 2}, Varied: patterns[index%len(patterns)],
	}
	return lineStyle(runColor(index), lineWidth, pattern[l])
}

func (s Series) thumbnail(index int) swatch {
	out := swatch{}
	if s.Line == NoLine {
		s.Line = s.Key
	}
	if s.Line != NoLine {
		out.line = s.Line.style(index)
	}
	if s.Marks {
		mark := markOf(index)
		out.mark = &mark
	} else {
		out.line.Width *= 1.5
	}
	return out
}

// draw draws intervals first, then lines, then marks.
func (c *Chart) draw(to draw.Canvas, p *plot.Plot) {
	bands := 0
	pieces := make([][][]Point, len(c.Series))
	for i, s := range c.Series {
		if s.Band {
			bands++
		}
		for _, piece := range split(s.Points, c.X, c.Y) {
			if s.Line != NoLine && !s.Marks {
				piece = Thin(piece, maxPoints, func(p Point) float64 { return p.Y })
			}
			pieces[i] = append(pieces[i], piece)
		}
	}
	for i, s := range c.Series {
		for _, piece := range pieces[i] {
			s.intervals(to, p, s.index(i), piece, bands)
		}
	}
	for i, s := range c.Series {
		for _, piece := range pieces[i] {
			if s.Line != NoLine {
				line := plotter.Line{LineStyle: s.Line.style(s.index(i))}
				line.XYs = lists.Map(piece, func(p Point) plotter.XY { return plotter.XY{X: p.X, Y: p.Y} })
				if s.Faint {
					line.Color, line.Width = faint(runColor(s.index(i))), rawWidth
				}
				line.Plot(to, p)
			}
		}
	}
	for i, s := range c.Series {
		s.marks(to, p, s.index(i), pieces[i])
	}
}

// intervals draws the band around a piece of a line, or its error bars.
func (s Series) intervals(c draw.Canvas, p *plot.Plot, index int, piece []Point, bands int) {
	x, _ := p.Transforms(&c)
	y := heights(c, p)
	if s.Band {
		var outline, back []vg.Point
		for i, pt := range piece {
			outline = append(outline, vg.Point{X: x(pt.X), Y: y(pt.Y + pt.Plus)})
			pt = piece[len(piece)-1-i]
			back = append(back, vg.Point{X: x(pt.X), Y: y(pt.Y - pt.Minus)})
		}
		ink := runColor(index) // translucent: 20 %, and less if many bands overlap
		ink.A = uint8(min(0x33, 0x99/bands))
		if outline = c.ClipPolygonXY(append(outline, back...)); len(outline) > 2 {
			c.FillPolygon(ink, outline)
		}
		return
	}
	style := lineStyle(runColor(index), barLine, nil)
	for _, pt := range piece {
		if (pt.Minus != 0 || pt.Plus != 0) && c.ContainsX(x(pt.X)) {
			low, high := y(pt.Y-pt.Minus), y(pt.Y+pt.Plus)
			errorBar(c, style, vg.Point{X: x(pt.X), Y: low}, vg.Point{X: x(pt.X), Y: high})
		}
		if across := reach(pt.Across); across != 0 && c.ContainsY(y(pt.Y)) {
			end := func(v float64) vg.Point {
				at := c.Min.X
				if p.X.Min <= 0 || v >= p.X.Min {
					at = min(max(x(v), c.Min.X), c.Max.X)
				}
				return vg.Point{X: at, Y: y(pt.Y)}
			}
			errorBar(c, style, end(pt.X-across), end(pt.X+across))
		}
	}
}

// heights returns a function that maps values to vertical positions. Values beyond the axis are
// mapped to its ends; on a logarithmic axis, values below zero are mapped to the lower end.
func heights(c draw.Canvas, p *plot.Plot) func(v float64) vg.Length {
	_, y := p.Transforms(&c)
	return func(v float64) vg.Length {
		if p.Y.Min > 0 && v < p.Y.Min {
			return c.Min.Y
		}
		return min(max(y(v), c.Min.Y), c.Max.Y)
	}
}

const barLine = 0.9 // width of an error bar, in points

func errorBar(c draw.Canvas, style draw.LineStyle, from, to vg.Point) {
	cap := vg.Point{Y: 2.5} // half of a cap
	if from.X == to.X {
		cap = vg.Point{X: 2.5}
	}
	c.StrokeLines(style, []vg.Point{from, to})
	for _, end := range []vg.Point{from, to} {
		c.StrokeLines(style, []vg.Point{end.Sub(cap), end.Add(cap)})
	}
}

func (s Series) marks(c draw.Canvas, p *plot.Plot, index int, pieces [][]Point) {
	const radius, ring = 3.6, 1.2 // of the marks at the ends, in points
	x, y := p.Transforms(&c)
	for i, piece := range pieces {
		for j, pt := range piece {
			at := vg.Point{X: x(pt.X), Y: y(pt.Y)}
			if !c.Contains(at) {
				continue
			}
			// The line of a single point between two breaks would not be visible.
			if s.Marks || s.Line != NoLine && len(piece) == 1 {
				c.DrawGlyphNoClip(markOf(index), at)
			}
			begin := i == 0 && j == 0
			if end := i == len(pieces)-1 && j == len(piece)-1; s.Ends && (begin || end) {
				disc := draw.GlyphStyle{Color: runColor(index), Radius: radius, Shape: draw.CircleGlyph{}}
				c.DrawGlyphNoClip(disc, at)
				if disc.Color, disc.Radius = background, radius-ring; begin && !end {
					c.DrawGlyphNoClip(disc, at)
				}
			}
		}
	}
}
