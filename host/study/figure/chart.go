package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Chart shows series of points in the plane: curves with a band around them,
// measurements with error bars and the lines fitted to them, trajectories.
type Chart struct {
	X, Y   Axis
	Series []Series // each is drawn on top of those before it
	Equal  bool     // use the same scale for x and y; for linear axes
}

// Line is how the points of a series are connected.
type Line int

// The kinds of lines.
const (
	NoLine Line = iota
	Solid
	Dashed
	Dotted
	Varied // a pattern given by its place among the series, so that lines on top of each other can be told apart
)

// Series is a list of points that belong together.
type Series struct {
	Name   string  // name in the legend; empty: it is not in the legend
	Points []Point // connected in this order; a point that does not fit on the axes breaks the line
	Line   Line
	Marks  bool // a mark at each point, whose shape goes with the colour
	Band   bool // draw the intervals of the points as a shaded band instead of error bars
	Ends   bool // mark where the line begins (a ring) and ends (a disc)
	Color  int  // 1, 2, …: the n-th colour of all figures; 0: the one given by its place among the series
	Key    Line // for a series without a line: the line beside its mark in the legend, as of a curve through it
}

// Point is a point, with an interval around Y if it has one.
type Point struct {
	X, Y        float64
	Minus, Plus float64 // how far the interval extends below and above Y; 0: not at all
	Across      float64 // how far the interval of X extends to each side; not used in bands
	Label       string  // written beside the point
}

func (c *Chart) compose(vg.Length) (composition, error) {
	x, y := c.spans()
	if x.empty() || y.empty() {
		return nil, ErrNoData
	}
	out := &single{plot: newPlot(""), equal: c.Equal && !c.X.Log && !c.Y.Log}
	c.X.apply(&out.plot.X, x)
	c.Y.apply(&out.plot.Y, y)
	layers := [][]plot.Plotter{{}, {}, {}}
	bands := 0
	for _, s := range c.Series {
		if s.Band {
			bands++
		}
	}
	for i, s := range c.Series {
		d := drawing{s, place(s.Color, i), bands, s.pieces(c)}
		for layer, part := range []func(draw.Canvas, *plot.Plot){d.intervals, d.lines, d.marks} {
			layers[layer] = append(layers[layer], layerFunc(part))
		}
	}
	for _, layer := range layers {
		out.plot.Add(layer...)
	}
	for i, s := range c.Series {
		if s.Name != "" {
			out.legend = append(out.legend, entry{s.Name, s.thumbnail(place(s.Color, i))})
		}
	}
	return out, nil
}

// nearZero is the share of a value below which the end of a band does not stretch a logarithmic
// axis.
const nearZero = 0.25

// spans are the ranges of what is drawn. On a logarithmic axis a band that comes near to zero
// counts in part: it would leave no room for the curves.
func (c *Chart) spans() (x, y span) {
	x, y = newSpan(), newSpan()
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !c.X.drawable(p.X) || !c.Y.drawable(p.Y) {
				continue
			}
			minus := p.Minus
			if c.Y.Log && s.Band {
				minus = min(minus, (1-nearZero)*p.Y)
			}
			x.addInterval(c.X, p.X, p.Across, p.Across)
			y.addInterval(c.Y, p.Y, minus, p.Plus)
		}
	}
	return x, y
}

// Span returns the range that the vertical axis has if the chart is drawn alone; ok is false if
// there is no point.
func (c *Chart) Span() (low, high float64, ok bool) {
	_, y := c.spans()
	if y.empty() {
		return 0, 0, false
	}
	var axis plot.Axis
	c.Y.apply(&axis, y)
	return axis.Min, axis.Max, true
}

// place is the number, from 0, of the colour and mark of the i-th series: of the chosen
// color (1, 2, …) if it is not 0, else i.
func place(color, i int) int {
	if color > 0 {
		return color - 1
	}
	return i
}

func (s Series) pieces(c *Chart) [][]Point {
	out := split(s.Points, c.X, c.Y)
	if s.Line != NoLine && !s.Marks {
		for i := range out {
			out[i] = Thin(out[i], maxPoints)
		}
	}
	return out
}

// patterns of varied lines: more than there are colours, so that seven and more can be told
// apart, and through all but the first those below can be seen.
var patterns = [Colors + 1][]vg.Length{nil, {6, 2.5}, {2, 1.8}, {7, 2, 2, 2}, {12, 4}, {3, 4}, {7, 2, 2, 2, 2, 2}, {14, 3, 3, 3}}

// style is the style of a series' line in the given place, nil if it has none. Dashes
// tell series apart whose colour is the same.
func (s Series) style(place int) *draw.LineStyle {
	var dashes []vg.Length
	switch s.Line {
	case Solid:
		dashes = runDashes(place)
	case Dashed:
		dashes = []vg.Length{5, 3}
	case Dotted:
		dashes = []vg.Length{1.2, 2}
	case Varied:
		dashes = patterns[place%len(patterns)]
	default:
		return nil
	}
	style := lineStyle(runColor(place), lineWidth, dashes)
	return &style
}

func (s Series) thumbnail(place int) plot.Thumbnailer {
	out := swatch{}
	if s.Line == NoLine {
		s.Line = s.Key
	}
	if style := s.style(place); style != nil {
		out.line = *style
		if !s.Marks {
			out.line.Width *= 1.5
		}
	}
	if s.Marks {
		mark := markOf(place)
		out.mark = &mark
	}
	return out
}

// layerFunc is a part of a plot.
type layerFunc func(draw.Canvas, *plot.Plot)

// Plot draws the part.
func (f layerFunc) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

// drawing is a series with its style.
type drawing struct {
	series Series
	place  int // the number of its colour, from 0
	bands  int // how many series of the chart have a band
	pieces [][]Point
}

func (d drawing) color() color.NRGBA { return runColor(d.place) }

// intervals draws the band, or error bars.
func (d drawing) intervals(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	at := heights(c, p)
	for _, piece := range d.pieces {
		if !d.series.Band {
			for _, pt := range piece {
				if (pt.Minus != 0 || pt.Plus != 0) && c.ContainsX(x(pt.X)) {
					errorBar(c, lineStyle(d.color(), barLine, nil), x(pt.X), at(pt.Y-pt.Minus), at(pt.Y+pt.Plus))
				}
				d.across(c, p, pt, at(pt.Y))
			}
			continue
		}
		var outline []vg.Point
		for _, pt := range piece {
			outline = append(outline, vg.Point{X: x(pt.X), Y: at(pt.Y + pt.Plus)})
		}
		for i := range piece {
			pt := piece[len(piece)-1-i]
			outline = append(outline, vg.Point{X: x(pt.X), Y: at(pt.Y - pt.Minus)})
		}
		fillArea(c, band(d.color(), d.bands), outline)
	}
}

// across draws the interval of X, as far as it lies on the canvas.
func (d drawing) across(c draw.Canvas, p *plot.Plot, pt Point, y vg.Length) {
	if reach(pt.Across) == 0 || !c.ContainsY(y) {
		return
	}
	x, _ := p.Transforms(&c)
	end := func(v float64) vg.Length {
		if p.X.Min > 0 && v < p.X.Min {
			return c.Min.X
		}
		return min(max(x(v), c.Min.X), c.Max.X)
	}
	acrossBar(c, lineStyle(d.color(), barLine, nil), end(pt.X-pt.Across), end(pt.X+pt.Across), y)
}

// band is a colour for areas, faint enough to see others through it: 20 %, and less where
// many bands lie on top of each other.
func band(c color.NRGBA, bands int) color.NRGBA {
	const alone, together = 0x33, 0x99
	c.A = uint8(min(alone, together/max(1, bands)))
	return c
}

func fillArea(c draw.Canvas, ink color.Color, outline []vg.Point) {
	if outline = c.ClipPolygonXY(outline); len(outline) > 2 {
		c.FillPolygon(ink, outline)
	}
}

// heights places values on the vertical axis, those beyond its ends at the ends. On a
// logarithmic axis what lies below zero is at the lower end.
func heights(c draw.Canvas, p *plot.Plot) func(v float64) vg.Length {
	_, y := p.Transforms(&c)
	return func(v float64) vg.Length {
		if p.Y.Min > 0 && v < p.Y.Min {
			return c.Min.Y
		}
		return min(max(y(v), c.Min.Y), c.Max.Y)
	}
}

const (
	barLine = 0.9 // points, of an error bar
	capSize = 2.5 // points, half of what closes an error bar
)

func errorBar(c draw.Canvas, style draw.LineStyle, x, low, high vg.Length) {
	c.StrokeLine2(style, x, low, x, high)
	for _, end := range []vg.Length{low, high} {
		c.StrokeLine2(style, x-capSize, end, x+capSize, end)
	}
}

func acrossBar(c draw.Canvas, style draw.LineStyle, low, high, y vg.Length) {
	c.StrokeLine2(style, low, y, high, y)
	for _, end := range []vg.Length{low, high} {
		c.StrokeLine2(style, end, y-capSize, end, y+capSize)
	}
}

func (d drawing) lines(c draw.Canvas, p *plot.Plot) {
	if style := d.series.style(d.place); style != nil {
		for _, piece := range d.pieces {
			(&plotter.Line{XYs: coordinates(piece), LineStyle: *style}).Plot(c, p)
		}
	}
}

func (d drawing) marks(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := textStyle(tickSize - 1)
	style.YAlign = draw.YCenter
	for i, piece := range d.pieces {
		for j, pt := range piece {
			at := vg.Point{X: x(pt.X), Y: y(pt.Y)}
			if !c.Contains(at) {
				continue
			}
			// A single point between two breaks has no line to be seen by.
			if d.series.Marks || d.series.Line != NoLine && len(piece) == 1 {
				c.DrawGlyphNoClip(markOf(d.place), at)
			}
			if d.series.Ends && i == 0 && j == 0 {
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: d.color(), Radius: endRadius, Shape: draw.CircleGlyph{}}, at)
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: background, Radius: endRadius - ringWidth, Shape: draw.CircleGlyph{}}, at)
			}
			if d.series.Ends && i == len(d.pieces)-1 && j == len(piece)-1 {
				c.DrawGlyphNoClip(draw.GlyphStyle{Color: d.color(), Radius: endRadius, Shape: draw.CircleGlyph{}}, at)
			}
			if pt.Label != "" {
				d.label(c, style, at, clean(pt.Label))
			}
		}
	}
}

// label writes beside a point, on the side where there is room.
func (d drawing) label(c draw.Canvas, style draw.TextStyle, at vg.Point, text string) {
	const gap = 5
	text = fit(text, style, c.Size().X/3)
	if at.X+gap+style.Width(text) > c.Max.X {
		style.XAlign = draw.XRight
		at.X -= 2 * gap
	}
	c.FillText(style, vg.Point{X: at.X + gap, Y: at.Y + gap}, text)
}

const (
	markRadius = 2.6 // points
	endRadius  = 3.6
	ringWidth  = 1.2
)

// shapes tell series apart where colours are not printed.
var shapes = [Colors]draw.GlyphDrawer{
	draw.CircleGlyph{}, polygon{4, 0.125}, polygon{3, 0.25}, polygon{4, 0}, polygon{3, 0.75}, polygon{5, 0.25}, polygon{6, 0},
}

// polygon is a filled mark with corners.
type polygon struct {
	corners int
	turn    float64 // where the first corner is: 0 at the right, ¼ on top
}

// DrawGlyph draws the mark with about the area of a circle.
func (g polygon) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	angle := 2 * math.Pi / float64(g.corners)
	reach := style.Radius * vg.Length(math.Sqrt(2*math.Pi/(float64(g.corners)*math.Sin(angle))))
	corners := make([]vg.Point, g.corners)
	for i := range corners {
		sin, cos := math.Sincos(2*math.Pi*g.turn + float64(i)*angle)
		corners[i] = vg.Point{X: at.X + reach*vg.Length(cos), Y: at.Y + reach*vg.Length(sin)}
	}
	c.FillPolygon(style.Color, corners)
}

// open is a mark that is not filled: only its rim is drawn.
type open struct{ draw.GlyphDrawer }

// DrawGlyph draws the mark, then fills the inside with the background.
func (o open) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	style.Shape, style.Radius = o.GlyphDrawer, style.Radius+ringWidth/2
	c.DrawGlyphNoClip(style, at)
	style.Color, style.Radius = background, style.Radius-ringWidth
	c.DrawGlyphNoClip(style, at)
}

// markOf is the mark of the i-th place. The second time that the colours are used the
// marks are open, the third time they have other shapes, and so on.
func markOf(i int) draw.GlyphStyle {
	const step = 3 // to another shape; with Colors shapes every one comes once
	round := i / Colors
	shape := shapes[(i+round/2*step)%Colors]
	if round%2 == 1 {
		shape = open{shape}
	}
	return draw.GlyphStyle{Color: runColor(i), Radius: markRadius, Shape: shape}
}
