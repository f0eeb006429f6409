package model

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

var allSites = Sites{Keys: true, Values: true, Queries: true, Head: true}

func withSites(m Language, s Sites) *transformer {
	return newTransformer(m.(*transformer).Settings, Options{Sites: s})
}

// bend stands for quantizers at sites other than inputs of layers, of a number of tokens. It
// applies a different smooth function for each kind, so that rounding errors stay small, and treats
// each token separately.
func bend(t *testing.T, m *transformer) func(tokens int) map[string]*program.Call {
	return func(tokens int) map[string]*program.Call {
		return atSites(t, m, 1, tokens, func(s ActivationSite) func(x program.Value) program.Value {
			factor := map[SiteKind]float64{KindQuery: 0.9, KindKey: 0.7, KindValue: 1.3,
				KindHead: 1.1}[s.Kind]
			if factor == 0 {
				return nil
			}
			return func(x program.Value) program.Value {
				return x.Scale(factor).Sub(x.Mul(x.Abs().MaxRow()).Scale(0.05))
			}
		})
	}
}

// TestAttentionQuantized checks that additional sites do not change losses and gradients with a
// quantizer that returns its input, nor losses without a quantizer.
func TestAttentionQuantized(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 3, 8
		weights := hashedWeights(m.Params())
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		outputs := func(m *transformer, quantized bool) [][]float32 {
			return evaluate(t, m, weights, tokens, batch,
				func(params []program.Value, ids program.Value) []program.Value {
					var calls map[string]*program.Call
					if quantized {
						calls = atSites(t, m, batch, context,
							func(ActivationSite) func(x program.Value) program.Value {
								return func(x program.Value) program.Value { return x.Scale(2).Scale(0.5) }
							})
					}
					return lossesAndGradients(m, params, ids, calls)
				})
		}
		want := outputs(withSites(m, Sites{}), true)
		got := outputs(withSites(m, allSites), true)
		for i := range want {
			if apart := engine.Distance(got[i], want[i]); !(apart < 2e-5) {
				t.Errorf("output %d: the relative difference is %.2g", i, apart)
			}
		}
		if none := outputs(withSites(m, allSites), false); !slices.Equal(none[0],
			outputs(withSites(m, Sites{}), false)[0]) {
			t.Error("sites change what is computed without a quantizer")
		}
	})
}

// TestGradientsOfOperands checks that a trained factor at each kind of site has the gradient that
// finite differences of the loss give.
func TestGradientsOfOperands(t *testing.T) {
	const batch, context, h = 2, 6, 1e-2
	m := withSites(newLlama(tiny), allSites)
	out := evaluate(t, m, hashedWeights(m.params), hashedTokens(0, batch*(context+1), tiny.Vocab),
		batch, func(params []program.Value, ids program.Value) []program.Value {
			var list []program.Value
			for _, kind := range []SiteKind{KindQuery, KindKey, KindValue, KindHead} {
				of := func(factor program.Value) pass {
					p := passOf(m, params, ids, map[string]*program.Call{})
					for _, s := range m.ActivationSites(batch, context) {
						if s.Kind != kind {
							continue
						}
						b := program.NewBuilder("times")
						x, f := b.Input("x", program.FloatType(s.Tokens, s.Width)),
							b.Input("factor", program.FloatType())
						b.Output("value", x.Mul(f))
						meaning, err := b.Build()
						if err != nil {
							t.Fatal(err)
						}
						p.Calls[s.Name] = &program.Call{Name: "times", Meaning: meaning}
						p.inputs[network.InputOf(s.Name, "factor")] = factor
					}
					return p
				}
				var names []string
				for _, s := range m.ActivationSites(batch, context) {
					names = append(names, network.InputOf(s.Name, "factor"))
				}
				gradients := of(ids.Builder().Const(1)).compute(m, names...)
				gradient := ids.Builder().Const(0) // of the factor, which the sites share
				for _, name := range names {
					if dx, ok := gradients[autodiff.Prefix+name]; ok {
						gradient = gradient.Add(dx)
					}
				}
				list = append(list, gradient)
				for _, f := range []float64{1 + h, 1 - h} {
					out := of(ids.Builder().Const(f)).compute(m)
					list = append(list, mean(out[network.Losses]))
				}
			}
			return list
		})
	for i := 0; i < len(out); i += 3 {
		got, want := float64(out[i][0]), float64(out[i+1][0]-out[i+2][0])/(2*h)
		if !(math.Abs(got-want) <= 2e-2*math.Abs(want)+2e-5) {
			t.Errorf("site %d: the gradient is %.4g, differences give %.4g", i/3, got, want)
		}
	}
}

// TestDecodeQuantizesOperands checks that a sequence decoded in pieces of any size has the logits
// of the whole sequence, with quantizers that treat each token separately.
func TestDecodeQuantizesOperands(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		m := withSites(language, allSites)
		const length, ends = 16, 11
		weights, tokens := hashedWeights(m.params), hashedTokens(0, ends, m.Vocab)
		eachExecutor(t, func(t *testing.T, d *engine.Device) {
			logits := func(calls map[string]*program.Call) []float32 {
				all := evaluateOn(t, d, m, weights, tokens, 1,
					func(params []program.Value, ids program.Value) []program.Value {
						return []program.Value{logitsOf(m, params, ids, calls)}
					})[0]
				return all[len(all)-m.Vocab:]
			}
			want := logits(bend(t, m)(ends))
			if apart := engine.Distance(want, logits(nil)); apart < 1e-3 {
				t.Fatalf("quantizers change the logits by %.2g only", apart)
			}
			for _, pieces := range [][]int{{ends}, {8, 1, 1, 1}, {3, 5, 3}} {
				got := evaluateOn(t, d, m, weights, tokens, 1,
					func(params []program.Value, ids program.Value) []program.Value {
						logits, _ := decodeIn(m, params, ids, []int32{0}, pieces, length, bend(t, m))
						return []program.Value{logits}
					})[0]
				if apart := engine.Distance(got, want); !(apart < 5e-6) {
					t.Errorf("pieces %v: the relative difference is %.2g", pieces, apart)
				}
			}
		})
	})
}

// TestSitesOfOperands checks that additional sites exist only on request, with their numbers of
// heads, and that the site of a tied head feeds no weight.
func TestSitesOfOperands(t *testing.T) {
	s := tiny
	s.Heads, s.KVHeads = 4, 2
	m := newLlama(s)
	if n := len(m.ActivationSites(2, 3)); n != 4*tiny.Layers {
		t.Errorf("%d sites without options", n)
	}
	m = withSites(m, allSites)
	list := m.ActivationSites(2, 3)
	if len(list) != 7*tiny.Layers+1 {
		t.Fatalf("%d sites", len(list))
	}
	for _, want := range []ActivationSite{
		{Name: "layers.1.attn.queries", Kind: KindQuery, Tokens: 6, Width: 16, Heads: 4},
		{Name: "layers.1.attn.keys", Kind: KindKey, Tokens: 6, Width: 8, Heads: 2},
		{Name: "layers.1.attn.values", Kind: KindValue, Tokens: 6, Width: 8, Heads: 2},
	} {
		if !slices.ContainsFunc(list, func(a ActivationSite) bool {
			return a.Name == want.Name && a.Kind == want.Kind && a.Tokens == want.Tokens &&
				a.Width == want.Width && a.Heads == want.Heads && a.Feeds == nil
		}) {
			t.Errorf("%+v is not among %+v", want, list)
		}
	}
	if head := list[len(list)-1]; head.Name != "head.input" ||
		!slices.Equal(head.Feeds, []string{"head"}) {
		t.Errorf("the last site is %+v", head)
	}
	tied := withSites(newLlama(tiedHead(tiny)), Sites{Head: true})
	if sites := tied.ActivationSites(1, 1); sites[len(sites)-1].Feeds != nil ||
		!tied.Params()[0].Quantized || tied.Params()[0].Role != architecture.RoleEmbedding {
		t.Errorf("the tied head: %+v", sites)
	}
}
