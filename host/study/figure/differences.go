package figure

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Differences shows paired differences: for each row, the differences of all pairs in a faint
// colour, and their mean with its interval. A line marks zero.
type Differences struct {
	X      Axis     // linear
	Rows   []string // from top to bottom
	Series []DifferenceSeries
}

// DifferenceSeries is a series that has differences in each row.
type DifferenceSeries struct {
	Name string // name in the legend; empty: not in the legend
	Rows []PairDifferences
}

// PairDifferences holds the differences of the pairs in a row. Values that are not finite are not
// drawn.
type PairDifferences struct {
	Each      []float64
	Mean      float64
	Low, High float64 // interval of the mean; NaN if there is none
}

func (d *Differences) compose(vg.Length) *composition {
	x := Axis{Label: d.X.Label} // linear, because differences have both signs
	all := newSpan()
	for _, s := range d.Series {
		for _, r := range s.Rows[:min(len(s.Rows), len(d.Rows))] {
			all.add(x, r.Each...)
			all.add(x, r.Mean, r.Low, r.High)
		}
	}
	if all.empty() {
		return nil
	}
	all.add(x, 0)
	p := newPlot("", "x")
	x.apply(&p.X, all)
	if !all.single() { // so that the line at zero is inside the frame even if all have one sign
		p.X.Min, p.X.Max = all.low-padding*(all.high-all.low), all.high+padding*(all.high-all.low)
	}
	names := slices.Clone(d.Rows)
	slices.Reverse(names)
	nominal(&p.Y, names)
	p.Add(layerFunc(func(c draw.Canvas, p *plot.Plot) { d.draw(c, p, x) }))
	const rowHeight = 18 // in points, for a row with one series
	height := rowHeight * vg.Length(len(d.Rows)*max(1, len(d.Series)))
	out := &composition{panels: []panel{{p, max(height, vg.Inch)}}}
	for i, s := range d.Series {
		if s.Name != "" {
			mark, line := markOf(i), lineStyle(runColor(i), lineWidth, nil)
			out.legend = append(out.legend, entry{s.Name, swatch{line, &mark}})
		}
	}
	return out
}

func (d *Differences) draw(c draw.Canvas, p *plot.Plot, axis Axis) {
	const pairRadius, pairDrop = 1.5, 4 // points: radius of a pair's mark, distance below the mean
	x, y := p.Transforms(&c)
	c.StrokeLine2(lineStyle(axisColor, axisWidth, nil), x(0), c.Min.Y, x(0), c.Max.Y)
	share := groupShare / float64(len(d.Series))
	for i, s := range d.Series {
		dot := draw.GlyphStyle{Color: faint(runColor(i)), Radius: pairRadius, Shape: draw.CircleGlyph{}}
		offset := groupShare/2 - share*(float64(i)+0.5)
		for row, r := range s.Rows[:min(len(s.Rows), len(d.Rows))] {
			at := y(float64(len(d.Rows)-1-row) + offset)
			for _, v := range r.Each {
				if axis.drawable(v) {
					c.DrawGlyphNoClip(dot, vg.Point{X: x(v), Y: at - pairDrop})
				}
			}
			if axis.drawable(r.Low) && axis.drawable(r.High) {
				from, to := vg.Point{X: x(r.Low), Y: at}, vg.Point{X: x(r.High), Y: at}
				errorBar(c, lineStyle(runColor(i), lineWidth, nil), from, to)
			}
			if axis.drawable(r.Mean) {
				c.DrawGlyphNoClip(markOf(i), vg.Point{X: x(r.Mean), Y: at})
			}
		}
	}
}
