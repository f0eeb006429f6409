package scaling

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/lists"
)

// Figure is a picture of a fit. Its file name has no extension.
type Figure struct {
	Name    string
	Picture figure.Picture
	Options figure.Options
}

// Figures returns the pictures of a fit: the losses against the model size, with the fitted curves;
// the normalized efficiencies; and the losses against the size of the weights in bytes, with the
// Pareto front.
func (fit *Fit) Figures() []Figure {
	tracks := fit.tracks()
	tracks = tracks[:min(len(tracks), len(lines))]
	var tokens []string // the tokens of each track
	for i, t := range tracks {
		text := strconv.FormatFloat(t.tokens, 'g', 3, 64)
		if len(tracks) > 1 {
			text += " (" + []string{"solid", "dashed", "dotted"}[i] + ")"
		}
		tokens = append(tokens, text)
	}
	about := ", " + strings.Join(tokens, ", ") + " tokens"
	if tracks[0].perParameter {
		about += " per parameter"
	}
	sizes := fit.losses("parameters outside the embeddings", func(n, _ float64) float64 { return n })
	figures := []Figure{{"loss-size", sizes, fit.size("Loss against size" + about)}}
	if bars := fit.bars(); len(bars.Groups) > 0 {
		title := figure.Options{Title: "Parameter efficiency per bit"}
		figures = append(figures, Figure{"efficiency", bars, title})
	}
	chart := fit.losses("bytes of the weights outside the embeddings", Bytes)
	front := figure.Series{Name: "Pareto front", Line: figure.Dashed, Color: figure.Colors} // black
	for _, p := range Pareto(fit.Points) {
		front.Points = append(front.Points, figure.Point{X: Bytes(p.N, p.Bits), Y: p.Loss})
	}
	chart.Series = append(chart.Series, front)
	return append(figures, Figure{"loss-bytes", chart, fit.size("Loss against bytes" + about)})
}

// size returns figure options with a size that leaves space for long legends.
func (fit *Fit) size(title string) figure.Options {
	more := float64(max(0, len(fit.Effs)-8))
	return figure.Options{Title: title, Width: 6 + min(2, more/4), Height: 3.6 + min(3, more/4)}
}

// losses draws the losses against x, a function of a model's parameters and bits, and for each
// group the fitted law along the first three tracks, over the group's range of sizes. Groups that
// share a colour have different dashes, unless the dashes distinguish tracks; then only the marks
// differ.
func (fit *Fit) losses(label string, x func(n, bits float64) float64) *figure.Chart {
	chart := &figure.Chart{
		X: figure.Axis{Label: label, Log: true},
		Y: figure.Axis{Label: "validation loss (nats per token)"},
	}
	tracks := fit.tracks()
	for i, e := range fit.Effs {
		g := e.Group
		s := figure.Series{Name: g.String(), Marks: true, Color: i + 1}
		if len(tracks) == 1 && len(fit.curve(g, tracks[0], x).Points) > 0 {
			s.Key = lines[0]
		}
		for _, p := range fit.Points {
			if p.Group == g {
				s.Points = append(s.Points, figure.Point{X: x(p.N, p.Bits), Y: p.Loss})
			}
		}
		chart.Series = append(chart.Series, s)
	}
	for i, e := range fit.Effs {
		g := e.Group
		for k, t := range tracks[:min(len(tracks), len(lines))] {
			s := fit.curve(g, t, x)
			s.Line, s.Color = lines[k], i+1
			if len(tracks) > 1 {
				s.Color = i%figure.Colors + 1
			}
			chart.Series = append(chart.Series, s)
		}
	}
	return chart
}

// bars draws eff·16/P with intervals, in a group of bars for each number of bits.
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
	bars.Groups = lists.Map(bits, bitsText)
	for _, method := range methods {
		series := figure.BarSeries{Name: method}
		for _, b := range bits {
			bar := figure.Bar{Y: math.NaN()}
			for _, e := range fit.Effs {
				if e.Group == (Group{method, b}) {
					low, high := Normalized(e.Low, b), Normalized(e.High, b)
					bar = figure.Bar{Y: e.Normalized, Minus: e.Normalized - low, Plus: high - e.Normalized}
				}
			}
			series.Bars = append(series.Bars, bar)
		}
		bars.Series = append(bars.Series, series)
	}
	return bars
}

// Pareto returns the points on the Pareto front of bytes and loss, sorted by bytes.
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

// track is a line in the plane of N and D along which losses are drawn. Its points have the same
// number of tokens, or the same number of tokens per parameter.
type track struct {
	perParameter bool
	tokens       float64
}

// value returns the quantity that is the same for all points of the track.
func (t track) value(n, d float64) float64 {
	if t.perParameter {
		return d / n
	}
	return d
}

func (t track) d(n float64) float64 {
	if t.perParameter {
		return t.tokens * n
	}
	return t.tokens
}

// contains reports whether a point is on the track, within 10 % because steps are rounded.
func (t track) contains(p Point) bool {
	return math.Abs(math.Log(t.value(p.N, p.D)/t.tokens)) < 0.1
}

// tracks returns the tracks along which the experiments were planned, the longest training first.
// They have equal tokens per parameter, or equal tokens if that makes fewer tracks.
func (fit *Fit) tracks() []track {
	along := func(perParameter bool) (all []track) {
		for _, p := range fit.Points {
			if !slices.ContainsFunc(all, func(t track) bool { return t.contains(p) }) {
				t := track{perParameter: perParameter}
				t.tokens = t.value(p.N, p.D)
				all = append(all, t)
			}
		}
		slices.SortFunc(all, func(a, b track) int { return cmp.Compare(b.tokens, a.tokens) })
		return all
	}
	perParameter, total := along(true), along(false)
	if len(total) < len(perParameter) {
		return total
	}
	return perParameter
}

var lines = []figure.Line{figure.Solid, figure.Dashed, figure.Dotted}

func (fit *Fit) curve(g Group, t track, x func(n, bits float64) float64) (s figure.Series) {
	low, high := math.Inf(1), 0.0
	for _, p := range fit.Points {
		if p.Group == g && t.contains(p) {
			low, high = math.Min(low, p.N), math.Max(high, p.N)
		}
	}
	if low >= high {
		return s
	}
	const steps = 60
	eff := fit.Eff(g)
	for i := range steps + 1 {
		n := low * math.Pow(high/low, float64(i)/steps)
		s.Points = append(s.Points, figure.Point{X: x(n, g.Bits), Y: fit.Law.Loss(n, t.d(n), eff)})
	}
	return s
}
