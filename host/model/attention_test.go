package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

func lossesOf(t *testing.T, m Model, weights [][]float32, tokens []int32, batch int) []float32 {
	t.Helper()
	return evaluate(t, m, weights, tokens, batch,
		func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			return []*graph.Node{m.Losses(params, ids, nil)}
		})[0]
}

func indexOf(t *testing.T, m Model, name string) int {
	t.Helper()
	i := slices.IndexFunc(m.Params(), func(p architecture.Param) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no parameter %s", name)
	}
	return i
}

// near checks that losses are within 2e-6 of the expected ones, relatively.
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= 2e-6*math.Abs(float64(want[i]))) {
			t.Errorf("%s: loss %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestPairingsArePermutations checks that the pairings of rotary features give equal models if the
// rows of queries and keys of each head are permuted: row 2i+c of an interleaved head is row
// c·size/2+i of a half-split one.
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

// TestSharedKeys checks that a model with shared key-value heads equals a model with one for each
// query head, in which the key-value heads of a group are identical.
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
	const head = 4 * row // number of weight elements of a head
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

// reflect multiplies the rows of x by the orthogonal matrix I − 2·vvᵀ, where all elements of v are
// equal.
func reflect(x *graph.Node) *graph.Node {
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	return graph.Sub(x, graph.MulScalar(mean, 2))
}

// TestOperandsMayBeRotated checks that losses and gradients do not change if an activation and the
// weights that its site feeds are multiplied by one orthogonal matrix along their last axes: the
// activation is only used in products with these weights. The limit allows for float32 rounding in
// about ten successive products.
func TestOperandsMayBeRotated(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 4, 16
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		run := func(rotate func(*graph.Node) *graph.Node) [][]float32 {
			return evaluate(t, m, hashedWeights(m.Params()), tokens, batch,
				func(params []*graph.Node, ids *graph.Node) []*graph.Node {
					used := slices.Clone(params)
					for _, site := range m.ActivationSites(batch, context) {
						for _, name := range site.Feeds {
							i := indexOf(t, m, name)
							used[i] = rotate(params[i])
						}
					}
					losses := m.Losses(used, ids,
						func(_ ActivationSite, x *graph.Node) *graph.Node { return rotate(x) })
					return append([]*graph.Node{losses}, graph.Gradient(graph.ReduceAllMean(losses), params...)...)
				})
		}
		plain, rotated := run(func(x *graph.Node) *graph.Node { return x }), run(reflect)
		for i := range plain {
			what := "losses"
			if i > 0 {
				what = "gradient of " + m.Params()[i-1].Name
			}
			if d := engine.Distance(rotated[i], plain[i]); !(d < 1e-5) {
				t.Errorf("%s: the relative difference is %.2g", what, d)
			}
		}
	})
}

// withFusedAttention opens a device and compares its fused attention with plain attention. It skips
// the test if the device has none for these sizes.
func withFusedAttention(t *testing.T, c coreSizes) *engine.Device {
	t.Helper()
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16})
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU has none for graphs")
	}
	if err := d.Try(c.trial(c.fused, 1<<26)); errors.Is(err, engine.ErrRefused) {
		t.Skip("fused attention is not used: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestFusedAttention compares fused attention, if the device has it, with products and a softmax.
func TestFusedAttention(t *testing.T) {
	for _, c := range []coreSizes{{1, 64, 128, false, 1. / 8}, {1, 128, 512, false, 1. / 64},
		{3, 64, 192, false, 1. / 8}, {2, 32, 129, false, 1. / 6}, {1, 64, 512, true, 1. / 8},
		{2, 128, 256, true, 1. / 11}} {
		t.Run(c.kind(), func(t *testing.T) { withFusedAttention(t, c) })
	}
}

// TestMarkedCore checks that the additional features of separatingCore separate documents like a
// mask, with a core that only masks later keys: in values and gradients, for scores that are far
// apart.
func TestMarkedCore(t *testing.T) {
	for _, c := range []coreSizes{{1, 8, 12, true, 1. / 3}, {2, 16, 300, true, 1. / 4}} {
		t.Run(c.kind(), func(t *testing.T) {
			const batch, keyHeads = 2, 2
			rng := rand.New(rand.NewPCG(3, uint64(c.context)))
			d := testdevice.Open(t, engine.Options{})
			var in []*engine.Buffer
			for _, heads := range []int{keyHeads * c.group, keyHeads, keyHeads, keyHeads * c.group} {
				values := make([]float32, batch*c.context*heads*c.size)
				for i := range values {
					values[i] = float32(4 * rng.NormFloat64())
				}
				in = append(in, testdevice.Upload(t, d, values, batch, c.context, heads, c.size))
			}
			documents := randomDocuments(rng, batch, c.context)
			if n := slices.Max(documents); n < 2 || !slices.Contains(documents, dataset.Padding) {
				t.Fatalf("only %d documents, or no padding", n)
			}
			marked := func(segments *graph.Node) attentionCore {
				return separatingCore(segments,
					maskedCore(scores{scale: c.scale},
						func(x *graph.Node) *graph.Node { return maskScores(x, nil, 0) }))
			}
			plain := func(segments *graph.Node) attentionCore {
				return plainCore(scores{scale: c.scale}, segments, 0)
			}
			want := testdevice.Evaluate(t, d, in, coreAndAdjoints(documents, plain))
			got := testdevice.Evaluate(t, d, in, coreAndAdjoints(documents, marked))
			for i := range want {
				// Sums of more terms have another order: scores of up to 300 have rounding errors of 1e-5.
				if apart := engine.Distance(got[i], want[i]); !(apart < 1e-5) {
					t.Errorf("output %d: the relative difference is %.2g", i, apart)
				}
			}
			if apart := engine.Distance(testdevice.Evaluate(t, d, in, coreAndAdjoints(nil, plain))[0],
				want[0]); apart < 0.1 {
				t.Errorf("without documents the values are only %.2g away", apart)
			}
		})
	}
}

// TestFusedModel compares the losses and gradients of whole models with fused and with plain
// attention.
func TestFusedModel(t *testing.T) {
	const batch, context = 2, 128
	for name, c := range map[string]architecture.Settings{
		"llama":  {Layers: 2, Heads: 2, KVHeads: 2, Width: 128, Hidden: 128, Vocab: 13},
		"shared": {Layers: 2, Heads: 4, KVHeads: 2, Width: 128, Hidden: 128, Vocab: 13},
	} {
		t.Run(name, func(t *testing.T) {
			withFusedAttention(t, coreSizes{group: c.Heads / c.KVHeads, size: c.Width / c.Heads,
				context: context, scale: 1 / math.Sqrt(float64(c.Width/c.Heads))})
			m := newLlama(c)
			if name == "shared" {
				m.Recompute = architecture.RecomputeBlocks
			}
			tokens := hashedTokens(0, batch*(context+1), c.Vocab)
			build := func(params []*graph.Node, ids *graph.Node) []*graph.Node {
				losses := m.Losses(params, ids, nil)
				return append([]*graph.Node{losses}, graph.Gradient(graph.ReduceAllMean(losses), params...)...)
			}
			plain := evaluateOn(t,
				testdevice.Open(t, engine.Options{Precision: device.BFloat16,
					Attention: device.PlainAttention}), m, hashedWeights(m.Params()), tokens, batch, build)
			fused := evaluateOn(t,
				testdevice.Open(t, engine.Options{Precision: device.BFloat16,
					Attention: device.FusedAttention}), m, hashedWeights(m.Params()), tokens, batch, build)
			for i := range plain {
				if apart := engine.Distance(fused[i], plain[i]); !(apart < 0.03) {
					t.Errorf("output %d: the relative difference is %.2g", i, apart)
				}
			}
		})
	}
}

// TestAttentionChoice checks that a device without fused attention computes attention plainly and
// warns only once.
func TestAttentionChoice(t *testing.T) {
	var warnings []string
	d, err := engine.Open(device.CPU,
		engine.Options{Precision: device.BFloat16, Warn: func(message string, details ...any) {
			warnings = append(warnings, message+": "+fmt.Sprint(details...))
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := coreSizes{group: 1, size: 8, context: 32, scale: 1. / 3}
	for range 2 {
		if c.choose(d, nil) == nil {
			t.Error("there is no attention")
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "without the device's fused operation") ||
		!strings.Contains(warnings[0], engine.ErrRefused.Error()) {
		t.Errorf("warnings are %q, want one", warnings)
	}
}
