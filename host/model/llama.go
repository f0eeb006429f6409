package model

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/graph"
)

// Llama is the network of the QuEST and CAGE pre-training runs (QuEST, Panferov et al. 2025; CAGE, Tabesh et al. 2025):
// pre-norm blocks of causal multi-head attention with rotary positions in interleaved pairs, and of SwiGLU; RMSNorm; no
// biases, no dropout; an output head of its own, unless it is tied to the embedding. The weights of all linear layers in the blocks are quantized. With
// fewer heads of keys and values, positions in half-split pairs and stretched wavelengths, it is Llama 3 (Grattafiori et
// al., 2024).
//
// The order of its parameters is: embedding; for each block attn_norm, attn.qkv, attn.out, mlp_norm, mlp.w1, mlp.w2,
// mlp.down; norm; head, unless it is tied. The rows of attn.qkv are those of the queries, the keys and the values, each head by head.
type Llama struct {
	transformer
	config LlamaConfig
}

var _ Language = (*Llama)(nil)

// NewLlama returns the model of the given shape.
func NewLlama(config LlamaConfig) (*Llama, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	config = config.WithDefaults()
	return &Llama{newTransformer(config.shape(), llamaBlocks{}), config}, nil
}

// Config returns the shape with its defaults filled in.
func (m *Llama) Config() LlamaConfig { return m.config }

// llamaBlocks is the architecture.
type llamaBlocks struct{}

func (llamaBlocks) name() string { return "llama" }

func (llamaBlocks) outer(_ shape, p Param) Param { return p }

// Positions of a block's parameters in their list.
const (
	llamaAttentionNorm = iota
	llamaQKV
	llamaOut
	llamaMLPNorm
	llamaMLP // w1, w2 and down
)

// blockParams draws the weights that write to the residual stream smaller, by √(2·layers), so that its variance does not
// grow with depth.
func (llamaBlocks) blockParams(s shape, prefix string) []Param {
	residualStd := s.initStd / math.Sqrt(2*float64(s.layers))
	return []Param{
		normParam(prefix+"attn_norm", s.width),
		matrixParam(prefix+"attn.qkv", s.initStd, s.projected(), s.width),
		matrixParam(prefix+"attn.out", residualStd, s.width, s.width),
		normParam(prefix+"mlp_norm", s.width),
		matrixParam(prefix+"mlp.w1", s.initStd, s.hidden, s.width),
		matrixParam(prefix+"mlp.w2", s.initStd, s.hidden, s.width),
		matrixParam(prefix+"mlp.down", residualStd, s.width, s.hidden),
	}
}

// block adds attention and the feed-forward layer, each of the normalized residual stream, to the stream x.
func (llamaBlocks) block(s shape, x *graph.Node, w []*graph.Node, sites [4]ActivationSite, r *rope, q ActivationQuantizer) *graph.Node {
	in := q.apply(sites[siteQKV], rmsNorm(x, w[llamaAttentionNorm], s.epsilon))
	mixed := q.apply(sites[siteOut], attention(in, w[llamaQKV], nil, r))
	x = graph.Add(x, linear(mixed, w[llamaOut]))
	in = rmsNorm(x, w[llamaMLPNorm], s.epsilon)
	return graph.Add(x, feedForward(in, w[llamaMLP:], sites, q))
}
