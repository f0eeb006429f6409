package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

// llama is the network of the QuEST and CAGE pre-training runs (QuEST, Panferov et al. 2025; CAGE, Tabesh et al. 2025):
// pre-norm blocks of causal multi-head attention with rotary positions in interleaved pairs, and of SwiGLU; RMSNorm; no
// biases, no dropout; an output head of its own, unless it is tied to the embedding. The weights of all linear layers in
// the blocks are quantized. With fewer heads of keys and values, positions in half-split pairs and stretched wavelengths,
// it is Llama 3 (Grattafiori et al., 2024).
//
// The order of its parameters is: embedding; for each block attn_norm, attn.qkv, attn.out, mlp_norm, mlp.w1, mlp.w2,
// mlp.down; norm; head, unless it is tied. The rows of attn.qkv are those of the queries, the keys and the values, each
// head by head.
type llama struct{}

// Positions of a block's parameters in their list.
const (
	llamaAttentionNorm = iota
	llamaQKV
	llamaOut
	llamaMLPNorm
	llamaMLP // w1, w2 and down
)

// block adds attention and the feed-forward layer, each of the normalized residual stream, to the stream x.
func (llama) block(s architecture.Settings, x *graph.Node, w []*graph.Node, sites blockSites, r *rope, q ActivationQuantizer) *graph.Node {
	var attention, mlp branch
	in := q.apply(sites[siteQKV], attention.norm(x, w[llamaAttentionNorm], s.NormEps))
	mixed := q.apply(sites[siteOut], attend(in, w[llamaQKV], nil, r, sites, q))
	x = attention.add(x, mixed, w[llamaOut])
	in = mlp.norm(x, w[llamaMLPNorm], s.NormEps)
	return mlp.add(x, gatedActivation(in, w[llamaMLP], w[llamaMLP+1], sites, q), w[llamaMLP+2])
}
