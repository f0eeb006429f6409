package scaling

import (
	"cmp"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/study/figure"
)

// Figure is a picture of a fit, with the name of its file, without an extension.
type Figure struct {
	Name    string
	Picture figure.Picture
	Options figure.Options
}

// Figures returns the pictures of a fit: the losses over the model size with the fitted
// curves, the normalized efficiencies, and the losses over the size of the weights in
// bytes with the Pareto front.
func (fit *Fit) Figures() []Figure {
	about := fit.tracksText()
	figures := []Figure{{"loss-size", fit.losses("parameters outside the embeddings", func(n, _ float64) float64 { return n }), fit.size("Loss against size" + about)}}
	if bars := fit.bars(); len(bars.Groups) > 0 {
		figures = append(figures, Figure{"efficiency", bars, figure.Options{Title: "Parameter efficiency per bit"}})
	}
	return append(figures, Figure{"loss-bytes", fit.overBytes(), fit.size("Loss against bytes" + about)})
}

// size makes room for long legends.
func (fit *Fit) size(title string) figure.Options {
	more := float64(max(0, len(fit.Effs)-8))
	return figure.Options{Title: title, Width: 6 + min(2, more/4), Height: 3.6 + min(3, more/4)}
}

// groups are the groups of the efficiencies, those of most bits first.
func (fit *Fit) groups() []Group {
	var all []Group
	for _, e := range fit.Effs {
		all = append(all, e.Group)
	}
	return all
}

// losses draws the losses, and the law, over x of a model's parameters and bits.
func (fit *Fit) losses(label string, x func(n, bits float64) float64) *figure.Chart {
	chart := &figure.Chart{X: figure.Axis{Label: label, Log: true}, Y: figure.Axis{Label: "validation loss (nats per token)"}}
	for i, g := range fit.groups() {
		chart.Series = append(chart.Series, fit.points(g, i, x))
	}
	return fit.addCurves(chart, x)
}

// overBytes draws the losses over the bytes of the weights.
func (fit *Fit) overBytes() *figure.Chart {
	chart := fit.losses("bytes of the weights outside the embeddings", Bytes)
	front := figure.Series{Name: "Pareto front", Line: figure.Dashed, Color: figure.Colors} // black
	for _, p := range Pareto(fit.Points) {
		front.Points = append(front.Points, figure.Point{X: Bytes(p.N, p.Bits), Y: p.Loss})
	}
	chart.Series = append(chart.Series, front)
	return chart
}

// points are the measured losses of the i-th group.
func (fit *Fit) points(g Group, i int, x func(n, bits float64) float64) figure.Series {
	s := figure.Series{Name: g.String(), Marks: true, Color: i + 1}
	if tracks := fit.tracks(); len(tracks) == 1 && len(fit.curve(g, tracks[0], x).Points) > 0 {
		s.Key = lines[0]
	}
	for _, p := range fit.Points {
		if p.Group == g {
			s.Points = append(s.Points, figure.Point{X: x(p.N, p.Bits), Y: p.Loss})
		}
	}
	return s
}

// bars draws eff·16/P with intervals, a group of bars for each number of bits.
func (fit *Fit) bars() *figure.Bars {
	var methods []string
	var bits []float64
	for _, e := range fit.Effs {
		if e.Bits >= fullPrecision {
			continue
		}
		if !slices.Contains(methods, e.Method) {
			methods = append(methods, e.Method)
		}
		if !slices.Contains(bits, e.Bits) {
			bits = append(bits, e.Bits)
		}
	}
	slices.Sort(bits)
	bars := &figure.Bars{Y: figure.Axis{Label: "eff(P) · 16/P  (1: full precision)"}, Labels: "%.2f"}
	for _, b := range bits {
		bars.Groups = append(bars.Groups, bitsText(b))
	}
	for _, method := range methods {
		series := figure.BarSeries{Name: method}
		for _, b := range bits {
			bar := figure.Bar{Y: math.NaN()}
			for _, e := range fit.Effs {
				if e.Group == (Group{method, b}) {
					bar = figure.Bar{Y: e.Normalized, Minus: e.Normalized - Normalized(e.Low, b), Plus: Normalized(e.High, b) - e.Normalized}
				}
			}
			series.Bars = append(series.Bars, bar)
		}
		bars.Series = append(bars.Series, series)
	}
	return bars
}

// Pareto returns the points that no other point beats with both fewer bytes and a lower
// loss, sorted by their bytes.
func Pareto(points []Point) []Point {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(Bytes(a.N, a.Bits), Bytes(b.N, b.Bits)), cmp.Compare(a.Loss, b.Loss))
	})
	var front []Point
	for _, p := range sorted {
		if len(front) == 0 || p.Loss < front[len(front)-1].Loss {
			front = append(front, p)
		}
	}
	return front
}
