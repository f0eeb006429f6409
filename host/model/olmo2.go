package model

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// OLMo2 is the network of OLMo 2 (Team OLMo, 2025), which the CAGE paper compares optimizers on: as [Llama], but the
// norms of a block are behind its two layers instead of before them, queries and keys are normalized over all heads
// together before their rotation, positions rotate half-split pairs, and all weights start alike, from a truncated
// normal distribution.
//
// The order of its parameters is: embedding; for each block attn.qkv, attn.q_norm, attn.k_norm, attn.out, attn_norm,
// mlp.w1, mlp.w2, mlp.down, mlp_norm; norm; head, unless it is tied. The rows of attn.qkv are those of the queries, the keys and the
// values, each head by head.
type OLMo2 struct {
	transformer
	config OLMo2Config
}

var _ Language = (*OLMo2)(nil)

// NewOLMo2 returns the model of the given shape.
func NewOLMo2(config OLMo2Config) (*OLMo2, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("olmo2: %w", err)
	}
	config = config.WithDefaults()
	return &OLMo2{newTransformer(config.shape(), olmo2Blocks{}), config}, nil
}

// Config returns the shape with its defaults filled in.
func (m *OLMo2) Config() OLMo2Config { return m.config }

// olmo2Blocks is the architecture.
type olmo2Blocks struct{}

func (olmo2Blocks) name() string { return "olmo2" }

// olmo2Cut bounds the weights at the start, in standard deviations.
const olmo2Cut = 3

func (olmo2Blocks) outer(_ shape, p Param) Param { return truncated(p) }

func truncated(p Param) Param {
	p.InitCut = olmo2Cut
	return p
}

// Positions of a block's parameters in their list.
const (
	olmo2QKV = iota
	olmo2QueryNorm
	olmo2KeyNorm
	olmo2Out
	olmo2AttentionNorm
	olmo2MLP     // w1, w2 and down
	olmo2MLPNorm = olmo2MLP + 3
)

func (olmo2Blocks) blockParams(s shape, prefix string) []Param {
	matrix := func(name string, out, in int) Param { return truncated(matrixParam(prefix+name, s.initStd, out, in)) }
	return []Param{
		matrix("attn.qkv", s.projected(), s.width),
		normParam(prefix+"attn.q_norm", s.heads*s.size()),
		normParam(prefix+"attn.k_norm", s.keyHeads*s.size()),
		matrix("attn.out", s.width, s.width),
		normParam(prefix+"attn_norm", s.width),
		matrix("mlp.w1", s.hidden, s.width),
		matrix("mlp.w2", s.hidden, s.width),
		matrix("mlp.down", s.width, s.hidden),
		normParam(prefix+"mlp_norm", s.width),
	}
}

// block adds attention and the feed-forward layer to the residual stream x, each normalized.
func (olmo2Blocks) block(s shape, x *graph.Node, w []*graph.Node, sites [4]ActivationSite, r *rope, q ActivationQuantizer) *graph.Node {
	norms := &queryKeyNorm{query: w[olmo2QueryNorm], key: w[olmo2KeyNorm], epsilon: s.epsilon}
	mixed := q.apply(sites[siteOut], attention(q.apply(sites[siteQKV], x), w[olmo2QKV], norms, r))
	x = graph.Add(x, rmsNorm(linear(mixed, w[olmo2Out]), w[olmo2AttentionNorm], s.epsilon))
	return graph.Add(x, rmsNorm(feedForward(x, w[olmo2MLP:olmo2MLPNorm], sites, q), w[olmo2MLPNorm], s.epsilon))
}
