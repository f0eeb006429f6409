package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

// qwen3 is the network of the dense Qwen3 models (Yang et al., 2025): [llama] with queries and keys normalized before
// their rotation, each head alone, and with positions that rotate half-split pairs. The size of a head is often not
// width/heads.
//
// The order of its parameters is that of llama with attn.q_norm and attn.k_norm behind attn.qkv.
type qwen3 struct{}

// Positions of a block's parameters in their list.
const (
	qwen3AttentionNorm = iota
	qwen3QKV
	qwen3QueryNorm
	qwen3KeyNorm
	qwen3Out
	qwen3MLPNorm
	qwen3MLP // w1, w2 and down
)

// block adds attention and the feed-forward layer, each of the normalized residual stream, to the stream x.
func (qwen3) block(s architecture.Settings, x *graph.Node, w []*graph.Node, sites blockSites, r *rope, q ActivationQuantizer) *graph.Node {
	norms := &queryKeyNorm{query: w[qwen3QueryNorm], key: w[qwen3KeyNorm], epsilon: s.NormEps}
	var attention, mlp branch
	in := q.apply(sites[siteQKV], attention.norm(x, w[qwen3AttentionNorm], s.NormEps))
	mixed := q.apply(sites[siteOut], attend(in, w[qwen3QKV], norms, r, sites, q))
	x = attention.add(x, mixed, w[qwen3Out])
	in = mlp.norm(x, w[qwen3MLPNorm], s.NormEps)
	return mlp.add(x, gatedActivation(in, w[qwen3MLP], w[qwen3MLP+1], sites, q), w[qwen3MLP+2])
}
