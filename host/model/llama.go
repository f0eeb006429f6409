package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

// llama is the network of the QuEST and CAGE pre-training runs (QuEST, Panferov et al. 2025; CAGE,
// Tabesh et al. 2025): pre-norm blocks of causal multi-head attention with rotary position
// embeddings on interleaved pairs, and of SwiGLU; RMSNorm; no biases, no dropout; a separate output
// head, unless it is tied to the embedding. The weights of all linear layers in the blocks are
// quantized. With grouped-query attention, half-split pairs and stretched wavelengths, it is Llama
// 3 (Grattafiori et al., 2024).
//
// With normsHeads it is the network of the dense Qwen3 models (Yang et al., 2025): queries and keys
// are normalized per head before their rotation, rotary pairs are half-split, and the size of a
// head is often not width/heads.
//
// The order of its parameters is: embedding; for each block attn_norm, attn.qkv, with normsHeads
// attn.q_norm and attn.k_norm, attn.out, mlp_norm, mlp.w1, mlp.w2, mlp.down; norm; head, unless it
// is tied. The rows of attn.qkv are those of the queries, then the keys, then the values, each head
// by head.
type llama struct{ normsHeads bool }

// block adds attention and the feed-forward layer, each of the normalized residual stream, to the
// stream x.
func (l llama) block(s architecture.Settings, x *graph.Node, w []*graph.Node, sites blockSites, r *rope, q ActivationQuantizer) *graph.Node {
	attentionNorm, qkv, rest := w[0], w[1], w[2:]
	var norms *queryKeyNorm
	if l.normsHeads {
		norms, rest = &queryKeyNorm{query: w[2], key: w[3], epsilon: s.NormEps}, w[4:]
	}
	out, mlpNorm, w1, w2, down := rest[0], rest[1], rest[2], rest[3], rest[4]
	var attention, mlp branch
	in := q.apply(sites[siteQKV], attention.norm(x, attentionNorm, s.NormEps))
	mixed := q.apply(sites[siteOut], attend(in, qkv, norms, r, sites, q))
	x = attention.add(x, mixed, out)
	in = mlp.norm(x, mlpNorm, s.NormEps)
	return mlp.add(x, gatedActivation(in, w1, w2, sites, q), down)
}
