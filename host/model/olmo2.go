package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

// olmo2 is the network of OLMo 2 (Team OLMo, 2025), on which the CAGE paper compares optimizers. It
// differs from [llama] as follows: blocks are post-norm, queries and keys are normalized over all
// heads together before their rotation, rotary pairs are half-split, and all weights have the same
// initial truncated normal distribution.
//
// The order of its parameters is: embedding; for each block attn.qkv, attn.q_norm, attn.k_norm,
// attn.out, attn_norm, mlp.w1, mlp.w2, mlp.down, mlp_norm; norm; head, unless it is tied. The rows
// of attn.qkv are those of the queries, then the keys, then the values, each head by head.
type olmo2 struct{}

// Indices of a block's parameters in its list.
const (
	olmo2QKV = iota
	olmo2QueryNorm
	olmo2KeyNorm
	olmo2Out
	olmo2AttentionNorm
	olmo2MLP     // w1, w2 and down
	olmo2MLPNorm = olmo2MLP + 3
)

// block adds attention and the feed-forward layer to the residual stream x, each normalized.
func (olmo2) block(s architecture.Settings, x *graph.Node, w []*graph.Node, sites blockSites, r *rope, q ActivationQuantizer) *graph.Node {
	norms := &queryKeyNorm{query: w[olmo2QueryNorm], key: w[olmo2KeyNorm], epsilon: s.NormEps}
	mixed := q.apply(sites[siteOut], attend(q.apply(sites[siteQKV], x), w[olmo2QKV], norms, r, sites, q))
	x = graph.Add(x, rmsNorm(linear(mixed, w[olmo2Out]), w[olmo2AttentionNorm], s.NormEps))
	down := linear(gatedActivation(x, w[olmo2MLP], w[olmo2MLP+1], sites, q), w[olmo2MLP+2])
	return graph.Add(x, rmsNorm(down, w[olmo2MLPNorm], s.NormEps))
}
