package model

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

func lossesOf(t *testing.T, m Model, weights [][]float32, tokens []int32, batch int) []float32 {
	t.Helper()
	return evaluate(t, m, weights, tokens, batch,
		func(params []program.Value, ids program.Value) []program.Value {
			return []program.Value{lossesIn(m, params, ids)}
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

// TestOperandsMayBeRotated checks that losses and gradients do not change if an activation and the
// weights that its site feeds are multiplied by one orthogonal matrix along their last axes, I −
// 2·vvᵀ, where all elements of v are equal: the activation is only used in products with these
// weights. The limit allows for float32 rounding in about ten successive products.
func TestOperandsMayBeRotated(t *testing.T) {
	reflect := func(x program.Value) program.Value { return x.Sub(x.MeanRow().Scale(2)) }
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 4, 16
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		calls := atSites(t, m, batch, context,
			func(ActivationSite) func(x program.Value) program.Value { return reflect })
		for _, site := range m.ActivationSites(batch, context) {
			for _, name := range site.Feeds {
				dims := m.Params()[indexOf(t, m, name)].Dims
				calls[name] = callOf(t, dims[0], dims[1], reflect)
			}
		}
		run := func(calls map[string]*program.Call) [][]float32 {
			return evaluate(t, m, hashedWeights(m.Params()), tokens, batch,
				func(params []program.Value, ids program.Value) []program.Value {
					return lossesAndGradients(m, params, ids, calls)
				})
		}
		plain, rotated := run(nil), run(calls)
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

// TestFusedModel compares the losses and gradients of whole models with fused and with plain
// attention.
func TestFusedModel(t *testing.T) {
	const batch, context = 2, 128
	for name, c := range map[string]architecture.Settings{
		"llama":  {Layers: 2, Heads: 2, KVHeads: 2, Width: 128, Hidden: 128, Vocab: 13},
		"shared": {Layers: 2, Heads: 4, KVHeads: 2, Width: 128, Hidden: 128, Vocab: 13},
	} {
		t.Run(name, func(t *testing.T) {
			if testdevice.Kind() == device.CPU {
				t.Skip("the CPU has none for graphs")
			}
			m := newLlama(c)
			if name == "shared" {
				m.Recompute = architecture.RecomputeBlocks
			}
			tokens := hashedTokens(0, batch*(context+1), c.Vocab)
			build := func(params []program.Value, ids program.Value) []program.Value {
				return lossesAndGradients(m, params, ids)
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
