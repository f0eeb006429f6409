package model

import (
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
)

// TestBlocks: block after block, a model computes what it computes as a whole, and asks for the same activations.
func TestBlocks(t *testing.T) { eachLanguage(t, testBlocks) }

func testBlocks(t *testing.T, language Language) {
	const batch, context = 2, 6
	m := language.(*transformer)
	var sites, listed []ActivationSite
	var params []architecture.Param
	seen := func(site ActivationSite, x *graph.Node) *graph.Node {
		sites = append(sites, site)
		return x
	}
	out := evaluate(t, m, hashedWeights(m.Params()), hashedTokens(1, batch*context, m.Vocab), batch, func(weights []*graph.Node, ids *graph.Node) []*graph.Node {
		x := embed(weights[0], graph.Reshape(ids, batch*context))
		at := 1
		for block := range m.Blocks() {
			own := m.BlockParams(block)
			x = m.Block(block, weights[at:at+len(own)], x, nil, batch, context, seen)
			at += len(own)
			params, listed = append(params, own...), append(listed, m.BlockSites(block, batch, context)...)
		}
		logits := linear(rmsNorm(x, weights[at], m.NormEps), m.head(weights))
		return []*graph.Node{graph.Reshape(logits, batch, context, m.Vocab), m.Logits(weights, ids, nil)}
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
}

// TestRecomputeSameBits: losses and gradients do not depend on whether the backward pass keeps what is inside a block or
// computes it again. The quantizer is asked a second time then, block by block from the last.
func TestRecomputeSameBits(t *testing.T) {
	llama, olmo2 := newLlama(tiny), newOLMo2(tiny)
	llama.Recompute, olmo2.Recompute = true, true
	for name, models := range map[string][2]Language{
		"llama": {newLlama(tiny), llama},
		"olmo2": {newOLMo2(tiny), olmo2},
	} {
		t.Run(name, func(t *testing.T) {
			want, once := gradients(t, models[0])
			got, twice := gradients(t, models[1])
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("output %d differs", i)
				}
			}
			if diff := cmp.Diff(slices.Concat(once, once[4:], once[:4]), twice); diff != "" {
				t.Errorf("sites (-want +got):\n%s", diff)
			}
		})
	}
}

// gradients returns the losses and all gradients of a quantized model, and the sites in the order of the quantizer's
// calls.
func gradients(t *testing.T, m Language) (outputs [][]float32, sites []string) {
	t.Helper()
	const batch, context = 3, 8
	outputs = evaluate(t, m, hashedWeights(m.Params()), hashedTokens(0, batch*(context+1), tiny.Vocab), batch,
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
