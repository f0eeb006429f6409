package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// logitsOf returns the logits after each of the ids, [batch·context, vocabulary].
func logitsOf(m Language, params []program.Value, ids program.Value,
	calls ...map[string]*program.Call) program.Value {
	return logitsIn(m, params, ids.Concatenate(1, ids.At(1, 0, 1)), calls...) // with any target
}

// decodeIn reads sequences ids, which begin at first, in pieces, with caches for length tokens. of
// returns the quantizers of a number of tokens. It returns the logits after the last token, and
// other outputs of the last piece.
func decodeIn(m *transformer, params []program.Value, ids program.Value, first []int32,
	pieces []int, length int, of func(tokens int) map[string]*program.Call,
	record ...string) (logits program.Value,
	out map[string]program.Value) {
	b, batch := ids.Builder(), len(first)
	integers := func(list ...int32) program.Value {
		return b.Apply(program.OpConstant, program.Attr{Ints: lists.Map(list,
			func(v int32) int64 { return int64(v) })}, program.Type{DType: program.Int,
			Shape: []int{len(list)}})
	}
	caches := map[string]program.Value{}
	for layer := range m.Layers {
		for _, name := range network.CacheOf(layer) {
			// Cache entries after the last piece must not affect the result.
			caches[name] = b.Full(1e3, m.CacheDims(batch, length)...)
		}
	}
	start := 0
	for _, n := range pieces {
		p := pass{inputs: map[string]program.Value{
			network.Tokens:     ids.At(1, start, start+n),
			network.Start:      integers(int32(start)).Reshape(),
			network.First:      integers(first...),
			network.Projection: params[indexOfHead(m)],
		}}
		p.Shape = network.Shape{Task: network.Decode, Batch: batch, Context: n, Cache: length,
			Record: record}
		p.Calls = of(batch * n)
		for i, param := range m.params {
			p.inputs[param.Name] = params[i]
		}
		for name, cache := range caches {
			p.inputs[name] = cache
		}
		out = p.compute(m)
		for name := range caches {
			caches[name] = out[name]
		}
		start += n
	}
	return out[network.Logits], out
}

func indexOfHead(m *transformer) int {
	return slices.IndexFunc(m.params, func(p architecture.Param) bool { return p.Name == m.Head() })
}

func unquantized(int) map[string]*program.Call { return nil }

// eachExecutor runs a test with a plan and with a graph on the CPU, or with the device of the
// tests.
func eachExecutor(t *testing.T, test func(t *testing.T, d *engine.Device)) {
	t.Helper()
	if testdevice.Kind() != device.CPU {
		test(t, testdevice.Open(t, engine.Options{}))
		return
	}
	for _, kernels := range []device.Kernels{device.FusedKernels, device.GraphKernels} {
		t.Run(string(kernels), func(t *testing.T) {
			test(t, testdevice.OpenCPU(t, engine.Options{Kernels: kernels}))
		})
	}
}

// TestDecode checks that two sequences of different lengths, in pieces of any size, have the logits
// of the whole sequences.
func TestDecode(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		m := language.(*transformer)
		weights := hashedWeights(m.Params())
		rng := rand.New(rand.NewPCG(7, 8))
		const length, ends = 16, 11
		first := []int32{0, 4}
		tokens := make([]int32, 2*ends) // including left padding
		for i := range tokens {
			tokens[i] = int32(rng.IntN(m.Vocab))
		}
		eachExecutor(t, func(t *testing.T, d *engine.Device) {
			for _, pieces := range [][]int{{ends}, {8, 1, 1, 1}, {3, 5, 3}} {
				got := evaluateOn(t, d, m, weights, tokens, 2,
					func(params []program.Value, ids program.Value) []program.Value {
						logits, _ := decodeIn(m, params, ids, first, pieces, length, unquantized)
						return []program.Value{logits}
					})[0]
				for row, begin := range first {
					sequence := tokens[row*ends+int(begin) : (row+1)*ends]
					all := evaluateOn(t, d, m, weights, sequence, 1,
						func(params []program.Value, ids program.Value) []program.Value {
							return []program.Value{logitsOf(m, params, ids)}
						})[0]
					var want []float64
					for _, l := range all[len(all)-m.Vocab:] {
						want = append(want, float64(l))
					}
					closeTo(t, "logits", got[row*m.Vocab:(row+1)*m.Vocab], want, 2e-6)
				}
			}
		})
	})
}

// TestDecodeQuantizes checks that quantizers get zeros exactly for padding.
func TestDecodeQuantizes(t *testing.T) {
	m := newLlama(tiny)
	var sites []string
	for _, s := range m.ActivationSites(2, 3) {
		sites = append(sites, s.Name)
	}
	out := evaluate(t, m, hashedWeights(m.params), []int32{1, 2, 3, 4, 5, 6}, 2,
		func(params []program.Value, ids program.Value) (seen []program.Value) {
			_, out := decodeIn(m, params, ids, []int32{0, 2}, []int{3}, 3, unquantized, sites...)
			for _, s := range sites {
				seen = append(seen, out[s])
			}
			return seen
		})
	for i, x := range out {
		width := len(x) / 6
		for row := range 6 {
			zero := !slices.ContainsFunc(x[row*width:(row+1)*width],
				func(v float32) bool { return v != 0 })
			if padding := row == 3 || row == 4; zero != padding {
				t.Errorf("%s: row %d is zero: %t", sites[i], row, zero)
			}
		}
	}
}

// TestBlocks checks that a model computed block by block has the same residual stream before its
// head, activation sites and parameters as the whole model.
func TestBlocks(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		const batch, context = 2, 6
		m := language.(*transformer)
		last := m.ActivationSites(batch, context)[len(m.ActivationSites(batch, context))-1].Name
		var listed []ActivationSite
		var params []architecture.Param
		tokens := hashedTokens(1, batch*(context+1), m.Vocab)
		out := evaluate(t, m, hashedWeights(m.Params()), tokens, batch,
			func(weights []program.Value, ids program.Value) []program.Value {
				x := ids.At(1, 0, context).Reshape(batch * context).Lookup(weights[0])
				x = x.Scale(m.InputScale())
				var recorded program.Value
				at := 1
				for block := range m.Network().Layers {
					own := m.BlockParams(block)
					of := pass{inputs: map[string]program.Value{network.Stream: x}}
					of.Shape = network.Shape{Task: network.OneBlock, Batch: batch, Context: context, Layer: block}
					for i, p := range own {
						of.inputs[p.Name] = weights[at+i]
					}
					if block == m.Network().Layers-1 {
						of.Record = []string{last}
						recorded = of.compute(m)[last]
						of.Record = nil
					}
					x = of.compute(m)[network.Stream]
					at += len(own)
					params, listed = append(params, own...), append(listed, m.BlockSites(block, batch, context)...)
				}
				whole := passOf(m, weights, ids)
				whole.Record = []string{last}
				return []program.Value{recorded, whole.compute(m)[last], x}
			})
		if apart := engine.Distance(out[0], out[1]); !(apart < 1e-6) {
			t.Errorf("an activation is %.2g from that of the whole model", apart)
		}
		if diff := cmp.Diff(m.ActivationSites(batch, context), listed); diff != "" {
			t.Errorf("sites (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(m.Params()[1:1+len(params)], params); diff != "" {
			t.Errorf("parameters (-want +got):\n%s", diff)
		}
	})
}

// TestRecomputeSameBits checks that losses and gradients have the same bits whether the backward
// pass saves the intermediate values of a block, or recomputes all or only those of attention, with
// and without quantizers.
func TestRecomputeSameBits(t *testing.T) {
	const batch, context = 3, 8
	for name, options := range map[string]engine.Options{"bfloat16": {Precision: device.BFloat16},
		"fused": {Kernels: device.FusedKernels}, "graph": {Kernels: device.GraphKernels},
		"kernels for GPUs": {Precision: device.BFloat16, Kernels: device.BodyKernels}} {
		for _, build := range []func(architecture.Settings) *transformer{newLlama, newOLMo2} {
			for _, quantized := range []bool{false, true} {
				if quantized && options.Precision == device.BFloat16 && options.Kernels == "" {
					continue // a plan stores values in bfloat16 where nothing reads them unrounded
				}
				t.Run(fmt.Sprint(name, " ", build(tiny).Kind, " ", quantized), func(t *testing.T) {
					var outputs [3][][]float32
					for i, recompute := range []architecture.Recompute{architecture.RecomputeNone,
						architecture.RecomputeAttention, architecture.RecomputeBlocks} {
						m := build(tiny)
						m.Recompute = recompute
						outputs[i] = evaluateOn(t, testdevice.Open(t, options), m, hashedWeights(m.Params()),
							hashedTokens(0, batch*(context+1), tiny.Vocab), batch,
							func(params []program.Value, ids program.Value) []program.Value {
								var calls map[string]*program.Call
								if quantized {
									calls = fakeQuantizers(t, m, batch, context)
								}
								return lossesAndGradients(m, params, ids, calls)
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
}
