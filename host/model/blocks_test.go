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
