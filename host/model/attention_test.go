package model

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

// lossesOf returns the token losses of a model.
func lossesOf(t *testing.T, m Model, weights [][]float32, tokens []int32, batch int) []float32 {
	t.Helper()
	return evaluate(t, m, weights, tokens, batch, func(params []*graph.Node, ids *graph.Node) []*graph.Node {
		return []*graph.Node{m.Losses(params, ids, nil)}
	})[0]
}

// indexOf returns the position of the named parameter.
func indexOf(t *testing.T, m Model, name string) int {
	t.Helper()
	i := slices.IndexFunc(m.Params(), func(p architecture.Param) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no parameter %s", name)
	}
	return i
}

// near compares losses.
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= 2e-6*math.Abs(float64(want[i]))) {
			t.Errorf("%s: loss %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestPairingsArePermutations: a model with one pairing is one with the other when the rows of queries and keys of each
// head change places: row 2i+c of an interleaved head is row c·size/2+i of a split one.
func TestPairingsArePermutations(t *testing.T) {
	half := tiny
	half.RopePairs = architecture.HalfSplit
	interleaved, split := newLlama(tiny), newLlama(half)
	weights := hashedWeights(interleaved.Params())
	tokens := hashedTokens(0, 2*9, tiny.Vocab)
	want := lossesOf(t, interleaved, weights, tokens, 2)
	unpermuted := lossesOf(t, split, weights, tokens, 2)
	if slices.Equal(want, unpermuted) {
		t.Error("the pairing changes nothing")
	}
	size := tiny.Width / tiny.Heads
	for _, name := range []string{"layers.0.attn.qkv", "layers.1.attn.qkv"} {
		w := weights[indexOf(t, split, name)]
		from := slices.Clone(w)
		for row := range 2 * tiny.Width { // queries and keys
			head, feature := row/size, row%size
			to := head*size + feature%2*size/2 + feature/2
			copy(w[to*tiny.Width:(to+1)*tiny.Width], from[row*tiny.Width:])
		}
	}
	near(t, "permuted", lossesOf(t, split, weights, tokens, 2), want)
}

// TestSharedKeys: with fewer heads of keys and values a model is one with as many as heads of queries, in which those of
// a group are the same.
func TestSharedKeys(t *testing.T) {
	config := architecture.Settings{Layers: 1, Heads: 6, KVHeads: 2, Width: 24, Hidden: 16, Vocab: 13}
	full := config
	full.KVHeads = 6
	shared, each := newLlama(config), newLlama(full)
	weights := hashedWeights(shared.Params())
	tokens := hashedTokens(0, 2*9, config.Vocab)
	want := lossesOf(t, shared, weights, tokens, 2)
	at := indexOf(t, shared, "layers.0.attn.qkv")
	const row = 24
	const head = 4 * row // elements of the rows of a head
	w := weights[at]
	expanded := slices.Clone(w[:6*head])
	for part := range 2 { // keys, values
		for h := range 6 {
			from := (6 + 2*part + h/3) * head
			expanded = append(expanded, w[from:from+head]...)
		}
	}
	weights[at] = expanded
	near(t, "one head of keys for each of queries", lossesOf(t, each, weights, tokens, 2), want)
}

// reflect multiplies rows by an orthogonal matrix, I − 2·vvᵀ with all elements of v equal.
func reflect(x *graph.Node) *graph.Node {
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	return graph.Sub(x, graph.MulScalar(mean, 2))
}

// TestOperandsMayBeRotated: an activation reaches nothing but products with the weights that its site feeds, along the
// last axis of both. So losses and gradients are the same when both are multiplied by one orthogonal matrix, up to the
// rounding of float32 in some ten products one after the other.
func TestOperandsMayBeRotated(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
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
	})
}
