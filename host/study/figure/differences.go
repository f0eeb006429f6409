package figure

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Differences shows differences between pairs of measurements: for each row the
// difference of each pair, faint, and their mean with its interval. A line marks zero.
type Differences struct {
	X      Axis     // linear
	Rows   []string // from top to bottom
	Series []DifferenceSeries
}

// DifferenceSeries is a series with differences in each row.
type DifferenceSeries struct {
	Name string // name in the legend; empty: it is not in the legend
	Rows []PairDifferences
}

// PairDifferences holds the differences of the pairs in one row. Values that are not
// finite are not drawn.
type PairDifferences struct {
	Each            []float64
	Mean, Low, High float64 // mean of the differences and its interval; Low and High are NaN if there is none
}

const (
	pairRadius = 1.5 // points, of the mark of one pair
	pairDrop   = 4   // points, of that mark below the mean
	rowRoom    = 18  // points, of a row with one series
	frameRoom  = 0.9 * vg.Inch
)

// rows is a figure whose height grows with its rows.
type rows struct {
	*single
	room vg.Length
}

func (r rows) height(title string, width vg.Length) vg.Length {
	h := r.room + frameRoom + max(0, r.legend.height(width)-defaultLegend)
	if title != "" {
		h += titleHeight
	}
	return max(h, 1.6*vg.Inch)
}

func (d *Differences) compose(vg.Length) (composition, error) {
	d = &Differences{d.X, d.Rows, d.Series}
	d.X.Log = false // differences have both signs
	all := newSpan()
	for _, s := range d.Series {
		for _, r := range s.Rows[:min(len(s.Rows), len(d.Rows))] {
			for _, v := range append(slices.Clone(r.Each), r.Mean, r.Low, r.High) {
				all.add(d.X, v)
			}
		}
	}
	if all.empty() {
		return nil, ErrNoData
	}
	all.add(d.X, 0)
	p := newBarePlot("")
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	grid.Vertical = lineStyle(gridColor, axisWidth, nil)
	p.Add(grid)
	d.X.apply(&p.X, all)
	margin := room * (all.high - all.low) // also where all differences have one sign: the line at zero is not the frame
	p.X.Min, p.X.Max = all.low-margin, all.high+margin
	names := slices.Clone(d.Rows)
	slices.Reverse(names)
	nominal(&p.Y, names)
	p.Add(layerFunc(d.draw))
	out := rows{&single{plot: p}, rowRoom * vg.Length(len(d.Rows)*max(1, len(d.Series)))}
	for i, s := range d.Series {
		if s.Name != "" {
			mark := markOf(i)
			out.legend = append(out.legend, entry{s.Name, swatch{line: lineStyle(runColor(i), lineWidth, nil), mark: &mark}})
		}
	}
	return out, nil
}

func (d *Differences) draw(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	c.StrokeLine2(lineStyle(axisColor, axisWidth, nil), x(0), c.Min.Y, x(0), c.Max.Y)
	share := groupShare / float64(len(d.Series))
	for i, s := range d.Series {
		offset := groupShare/2 - share*(float64(i)+0.5)
		for row, r := range s.Rows[:min(len(s.Rows), len(d.Rows))] {
			d.row(c, x, y(float64(len(d.Rows)-1-row)+offset), i, r)
		}
	}
}

func (d *Differences) row(c draw.Canvas, x func(float64) vg.Length, y vg.Length, place int, r PairDifferences) {
	dot := draw.GlyphStyle{Color: faint(runColor(place)), Radius: pairRadius, Shape: draw.CircleGlyph{}}
	for _, v := range r.Each {
		if d.X.drawable(v) {
			c.DrawGlyphNoClip(dot, vg.Point{X: x(v), Y: y - pairDrop})
		}
	}
	if d.X.drawable(r.Low) && d.X.drawable(r.High) {
		acrossBar(c, lineStyle(runColor(place), lineWidth, nil), x(r.Low), x(r.High), y)
	}
	if d.X.drawable(r.Mean) {
		c.DrawGlyphNoClip(markOf(place), vg.Point{X: x(r.Mean), Y: y})
	}
}
