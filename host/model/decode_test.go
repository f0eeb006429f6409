package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// logitsOf returns the logits after each of the ids, [batch, context].
func logitsOf(m Language, params []*graph.Node, ids *graph.Node,
	q ActivationQuantizer) *graph.Node {
	last := graph.Slice(ids, graph.AxisRange(), graph.AxisRange(0, 1)) // any target
	return m.BatchLogits(params, graph.Concatenate([]*graph.Node{ids, last}, 1), q)
}

// TestDecode checks that two sequences of different lengths, in pieces of any size, have the logits
// of the whole sequences.
func TestDecode(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		vocabulary := m.(*transformer).Vocab
		weights := hashedWeights(m.Params())
		rng := rand.New(rand.NewPCG(7, 8))
		const length, ends = 16, 11
		first := []int32{0, 4}
		tokens := make([]int32, 2*ends) // including left padding
		for i := range tokens {
			tokens[i] = int32(rng.IntN(vocabulary))
		}
		for _, pieces := range [][]int{{ends}, {8, 1, 1, 1}, {3, 5, 3}} {
			got := evaluate(t, m, weights, tokens, 2,
				func(params []*graph.Node, ids *graph.Node) []*graph.Node {
					g := ids.Graph()
					var caches []*graph.Node
					for _, dims := range m.CacheDims(2, length) {
						// Cache entries after the last piece must not affect the result.
						caches = append(caches, graph.BroadcastToDims(graph.Const(g, float32(1e3)), dims...))
					}
					var logits *graph.Node
					start := 0
					for _, n := range pieces {
						piece := Piece{
							Tokens: graph.Slice(ids, graph.AxisRange(), graph.AxisRange(start, start+n)),
							Start:  graph.Const(g, int32(start)),
							First:  engine.Constant(g, first, 2),
						}
						logits, caches = m.Decode(params, piece, caches, nil)
						start += n
					}
					return []*graph.Node{logits}
				})[0]
			for row, begin := range first {
				sequence := tokens[row*ends+int(begin) : (row+1)*ends]
				all := evaluate(t, m, weights, sequence, 1,
					func(params []*graph.Node, ids *graph.Node) []*graph.Node {
						return []*graph.Node{logitsOf(m, params, ids, nil)}
					})[0]
				var want []float64
				for _, l := range all[len(all)-vocabulary:] {
					want = append(want, float64(l))
				}
				closeTo(t, "logits", got[row*vocabulary:(row+1)*vocabulary], want, 2e-6)
			}
		}
	})
}

// TestDecodeQuantizes checks that the sites of a piece have its number of tokens, and that
// quantizers get zeros for padding.
func TestDecodeQuantizes(t *testing.T) {
	m := newLlama(tiny)
	var sites []ActivationSite
	out := evaluate(t, m, hashedWeights(m.params), []int32{1, 2, 3, 4, 5, 6}, 2,
		func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			g := ids.Graph()
			var caches, seen []*graph.Node
			for _, dims := range m.CacheDims(2, 3) {
				caches = append(caches, graph.BroadcastToDims(graph.Const(g, float32(0)), dims...))
			}
			m.Decode(params, Piece{Tokens: ids, Start: graph.Const(g, int32(0)),
				First: engine.Constant(g, []int32{0, 2}, 2)}, caches,
				func(site ActivationSite, x *graph.Node) *graph.Node {
					sites, seen = append(sites, site), append(seen, x)
					return x
				})
			return seen
		})
	want := m.ActivationSites(2, 3)
	if len(sites) != len(want) {
		t.Fatalf("%d sites, want %d", len(sites), len(want))
	}
	for i, x := range out {
		if sites[i].Name != want[i].Name || sites[i].Tokens != 6 || len(x) != 6*want[i].Width {
			t.Errorf("site %+v with %d elements, want %+v", sites[i], len(x), want[i])
		}
		for row := range 6 {
			zero := true
			for _, v := range x[row*want[i].Width : (row+1)*want[i].Width] {
				zero = zero && v == 0
			}
			if padding := row == 3 || row == 4; zero != padding {
				t.Errorf("%s: row %d is zero: %t", sites[i].Name, row, zero)
			}
		}
	}
}

// TestBlocks checks that a model computed block by block has the same logits, activation sites and
// parameters as the whole model.
func TestBlocks(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		const batch, context = 2, 6
		m := language.(*transformer)
		var sites, listed []ActivationSite
		var params []architecture.Param
		seen := func(site ActivationSite, x *graph.Node) *graph.Node {
			sites = append(sites, site)
			return x
		}
		out := evaluate(t, m, hashedWeights(m.Params()), hashedTokens(1, batch*context, m.Vocab), batch,
			func(weights []*graph.Node, ids *graph.Node) []*graph.Node {
				x := graph.Gather(weights[0], graph.Reshape(ids, batch*context, 1))
				x = graph.MulScalar(x, m.InputScale())
				at := 1
				for block := range m.Blocks() {
					own := m.BlockParams(block)
					x = m.Block(block, weights[at:at+len(own)], x, nil, batch, context, seen)
					at += len(own)
					params, listed = append(params, own...), append(listed, m.BlockSites(block, batch, context)...)
				}
				gain := graph.MulScalar(m.gain(weights[at]), m.LogitScale())
				logits := m.head(weights).linear(rmsNorm(x, gain, m.NormEps))
				return []*graph.Node{graph.Reshape(logits, batch, context, m.Vocab),
					logitsOf(m, weights, ids, nil)}
			})
		if !slices.Equal(out[0], out[1]) {
			t.Error("the logits differ from those of the whole model")
		}
		for _, list := range [][]ActivationSite{sites, listed} {
			if diff := cmp.Diff(m.ActivationSites(batch, context), list); diff != "" {
				t.Errorf("sites (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff(m.Params()[1:1+len(params)], params); diff != "" {
			t.Errorf("parameters (-want +got):\n%s", diff)
		}
	})
}

// TestRecomputeSameBits checks that losses and gradients have the same bits whether the backward
// pass saves the intermediate values of a block, or recomputes all or only those of attention. If
// it recomputes blocks, it calls the quantizer again, block by block from the last.
func TestRecomputeSameBits(t *testing.T) {
	for _, build := range []func(architecture.Settings) *transformer{newLlama, newOLMo2} {
		once := build(tiny)
		want, sites := gradients(t, once)
		for recompute, wantSites := range map[architecture.Recompute][]string{
			architecture.RecomputeAttention: sites,
			architecture.RecomputeBlocks:    slices.Concat(sites, sites[4:], sites[:4]),
		} {
			t.Run(fmt.Sprint(once.Kind, "/", recompute), func(t *testing.T) {
				again := build(tiny)
				again.Recompute = recompute
				got, asked := gradients(t, again)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("output %d differs", i)
					}
				}
				if diff := cmp.Diff(wantSites, asked); diff != "" {
					t.Errorf("sites (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestRecomputeUnquantized checks the same without quantizers.
func TestRecomputeUnquantized(t *testing.T) {
	const batch, context = 3, 8
	for name, options := range map[string]engine.Options{
		"fused": {Kernels: device.FusedKernels}, "bfloat16": {Precision: device.BFloat16},
	} {
		for _, build := range []func(architecture.Settings) *transformer{newLlama, newOLMo2} {
			t.Run(name+"/"+build(tiny).Kind, func(t *testing.T) {
				var outputs [3][][]float32
				for i, recompute := range []architecture.Recompute{architecture.RecomputeNone,
					architecture.RecomputeAttention, architecture.RecomputeBlocks} {
					m := build(tiny)
					m.Recompute = recompute
					outputs[i] = evaluateOn(t, testdevice.Open(t, options), m, hashedWeights(m.Params()),
						hashedTokens(0, batch*(context+1), tiny.Vocab), batch,
						func(params []*graph.Node, ids *graph.Node) []*graph.Node {
							losses := m.Losses(params, ids, nil)
							return append(graph.Gradient(graph.ReduceAllMean(losses), params...), losses)
						})
				}
				for i, want := range outputs[0] {
					for _, again := range outputs[1:] {
						if !slices.Equal(again[i], want) {
							t.Errorf("output %d differs", i)
						}
					}
					if !slices.ContainsFunc(want, func(x float32) bool { return x != 0 }) {
						t.Errorf("output %d is zero", i)
					}
				}
			})
		}
	}
}

// gradients returns all gradients and the losses of a quantized model, and the sites in the order
// of the quantizer's calls.
func gradients(t *testing.T, m Language) (outputs [][]float32, sites []string) {
	t.Helper()
	const batch, context = 3, 8
	outputs = evaluate(t, m, hashedWeights(m.Params()), hashedTokens(0, batch*(context+1), tiny.Vocab),
		batch,
		func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			quantized, q := fakeQuantizeAll(m, params)
			losses := m.Losses(quantized, ids, func(site ActivationSite, x *graph.Node) *graph.Node {
				sites = append(sites, site.Name)
				return q(site, x)
			})
			return append(graph.Gradient(graph.ReduceAllMean(losses), params...), losses)
		})
	return outputs, sites
}
