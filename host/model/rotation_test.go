package model

import (
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
)

// reflect multiplies rows by an orthogonal matrix, I − 2·vvᵀ with all elements of v equal.
func reflect(x *graph.Node) *graph.Node {
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	return graph.Sub(x, graph.MulScalar(mean, 2))
}

// TestOperandsMayBeRotated: an activation reaches nothing but products with the weights that its site feeds, along the
// last axis of both. So losses and gradients are the same when both are multiplied by one orthogonal matrix, up to the
// rounding of float32 in some ten products one after the other.
func TestOperandsMayBeRotated(t *testing.T) { eachLanguage(t, testOperandsMayBeRotated) }

func testOperandsMayBeRotated(t *testing.T, m Language) {
	const batch, context = 4, 16
	tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
	run := func(rotate func(*graph.Node) *graph.Node) [][]float32 {
		return evaluate(t, m, hashedWeights(m.Params()), tokens, batch, func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			used := slices.Clone(params)
			for _, site := range m.ActivationSites(batch, context) {
				for _, name := range site.Feeds {
					i := indexOf(t, m, name)
					used[i] = rotate(params[i])
				}
			}
			losses := m.Losses(used, ids, func(_ ActivationSite, x *graph.Node) *graph.Node { return rotate(x) })
			return append([]*graph.Node{losses}, graph.Gradient(graph.ReduceAllMean(losses), params...)...)
		})
	}
	plain, rotated := run(func(x *graph.Node) *graph.Node { return x }), run(reflect)
	for i := range plain {
		what := "losses"
		if i > 0 {
			what = "gradient of " + m.Params()[i-1].Name
		}
		if d := relativeDistance(rotated[i], plain[i]); !(d < 1e-5) {
			t.Errorf("%s: the relative difference is %.2g", what, d)
		}
	}
}
