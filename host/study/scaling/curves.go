package scaling

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study/figure"
)

// track is a way through the plane of N and D along which losses are drawn: points of the
// same number of tokens, or of the same number of tokens per parameter.
type track struct {
	perParameter bool
	tokens       float64
}

func (t track) of(n, d float64) float64 {
	if t.perParameter {
		return d / n
	}
	return d
}

// d is the number of tokens of a model of n parameters.
func (t track) d(n float64) float64 {
	if t.perParameter {
		return t.tokens * n
	}
	return t.tokens
}

// holds reports whether a point lies on the track; training in whole steps misses it a bit.
func (t track) holds(p Point) bool { return math.Abs(math.Log(t.of(p.N, p.D)/t.tokens)) < 0.1 }

// tracks are the tracks that the experiments were planned along, the longest trainings
// first. They have equal tokens per parameter, or equal tokens if that makes fewer tracks.
func (fit *Fit) tracks() []track {
	along := func(perParameter bool) (all []track) {
		for _, p := range fit.Points {
			if !slices.ContainsFunc(all, func(t track) bool { return t.holds(p) }) {
				t := track{perParameter: perParameter}
				t.tokens = t.of(p.N, p.D)
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

// lines of the tracks that are drawn: the longest trainings are solid.
var lines = []figure.Line{figure.Solid, figure.Dashed, figure.Dotted}

// tracksText says what the curves stand for.
func (fit *Fit) tracksText() string {
	tracks := fit.tracks()
	tracks = tracks[:min(len(tracks), len(lines))]
	var tokens []string
	for _, t := range tracks {
		text := strconv.FormatFloat(t.tokens, 'g', 3, 64)
		if len(tracks) > 1 {
			text += " (" + []string{"solid", "dashed", "dotted"}[len(tokens)] + ")"
		}
		tokens = append(tokens, text)
	}
	text := ", " + strings.Join(tokens, ", ") + " tokens"
	if tracks[0].perParameter {
		text += " per parameter"
	}
	return text
}

// addCurves adds the law for each group along the tracks, over the sizes that the group has
// there; tracks beyond the third have no line. Groups that share a colour have dashes of
// their own, unless these tell the tracks apart: then the marks do.
func (fit *Fit) addCurves(chart *figure.Chart, x func(n, bits float64) float64) *figure.Chart {
	tracks := fit.tracks()
	for i, g := range fit.groups() {
		for k, t := range tracks {
			if k < len(lines) {
				s := fit.curve(g, t, x)
				s.Line, s.Color = lines[k], i+1
				if len(tracks) > 1 {
					s.Color = i%figure.Colors + 1
				}
				chart.Series = append(chart.Series, s)
			}
		}
	}
	return chart
}

func (fit *Fit) curve(g Group, t track, x func(n, bits float64) float64) (s figure.Series) {
	low, high := math.Inf(1), 0.0
	for _, p := range fit.Points {
		if p.Group == g && t.holds(p) {
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
