package figure

import (
	"gonum.org/v1/plot"
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

// nearZero is the share of a value below which the end of a band does not stretch a logarithmic axis.
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

// Span returns the range that the vertical axis has if the chart is drawn alone; ok is false if there is no point.
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

// pieces are the unbroken parts of a series.
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

// thumbnail is the picture of a series in the legend.
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
