package model

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Llama is the network of the QuEST and CAGE pre-training runs (QuEST, Panferov et al. 2025; CAGE, Tabesh et al. 2025):
// pre-norm blocks of causal multi-head attention with rotary positions in interleaved pairs, and of SwiGLU; RMSNorm; no
// biases, no dropout; an output head of its own. The weights of all linear layers in the blocks are quantized.
type Llama struct {
	config LlamaConfig
	params []Param
}

var _ Model = (*Llama)(nil)

// Positions of a block's parameters, and of those after the blocks, in the list of parameters.
const (
	paramEmbedding = iota
	paramBlocks
)
const (
	blockAttentionNorm = iota
	blockQKV
	blockOut
	blockMLPNorm
	blockW1
	blockW2
	blockDown
	blockParams // their number
)

// NewLlama returns the model of the given shape.
func NewLlama(config LlamaConfig) (*Llama, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	m := &Llama{config: config.WithDefaults()}
	m.params = llamaParams(m.config)
	return m, nil
}

// llamaParams lists the parameters. Weights that write to the residual stream start smaller, by √(2·layers), so that
// its variance does not grow with depth.
func llamaParams(c LlamaConfig) []Param {
	residualStd := c.InitStd / math.Sqrt(2*float64(c.Layers))
	matrix := func(name string, std float64, dims ...int) Param {
		return Param{Name: name, Dims: dims, Role: RoleMatrix, Quantized: true, Decay: true, InitStd: std}
	}
	norm := func(name string) Param {
		return Param{Name: name, Dims: []int{c.Width}, Role: RoleNorm, InitMean: 1}
	}
	params := []Param{{Name: "embedding", Dims: []int{c.Vocabulary, c.Width}, Role: RoleEmbedding, InitStd: c.InitStd}}
	for layer := range c.Layers {
		prefix := fmt.Sprintf("layers.%d.", layer)
		params = append(params,
			norm(prefix+"attn_norm"),
			matrix(prefix+"attn.qkv", c.InitStd, 3*c.Width, c.Width),
			matrix(prefix+"attn.out", residualStd, c.Width, c.Width),
			norm(prefix+"mlp_norm"),
			matrix(prefix+"mlp.w1", c.InitStd, c.Hidden, c.Width),
			matrix(prefix+"mlp.w2", c.InitStd, c.Hidden, c.Width),
			matrix(prefix+"mlp.down", residualStd, c.Width, c.Hidden))
	}
	return append(params, norm("norm"),
		Param{Name: "head", Dims: []int{c.Vocabulary, c.Width}, Role: RoleHead, InitStd: c.InitStd})
}

// Config returns the shape with its defaults filled in.
func (m *Llama) Config() LlamaConfig { return m.config }

// Params implements [Model]. The order is: embedding; for each block attn_norm, attn.qkv, attn.out, mlp_norm, mlp.w1,
// mlp.w2, mlp.down; norm; head. The rows of attn.qkv are those of the queries, the keys and the values, each head by
// head.
func (m *Llama) Params() []Param { return m.params }

// ActivationSites implements [Model]. There are four per block: the inputs of the attention's fused projection, of its
// output projection, of the two projections into the feed-forward layer, which share one, and of that out of it.
func (m *Llama) ActivationSites(batch, context int) []ActivationSite {
	var sites []ActivationSite
	for layer := range m.config.Layers {
		block := m.blockSites(layer, batch*context)
		sites = append(sites, block[:]...)
	}
	return sites
}

// blockSites lists the sites of one block in the order of computation.
func (m *Llama) blockSites(layer, tokens int) [4]ActivationSite {
	prefix := fmt.Sprintf("layers.%d.", layer)
	site := func(name string, width int, feeds ...string) ActivationSite {
		for i := range feeds {
			feeds[i] = prefix + feeds[i]
		}
		return ActivationSite{Name: prefix + name, Feeds: feeds, Tokens: tokens, Width: width}
	}
	return [4]ActivationSite{
		site("attn.qkv.input", m.config.Width, "attn.qkv"),
		site("attn.out.input", m.config.Width, "attn.out"),
		site("mlp.input", m.config.Width, "mlp.w1", "mlp.w2"),
		site("mlp.down.input", m.config.Hidden, "mlp.down"),
	}
}

// TokenLosses implements [Model].
func (m *Llama) TokenLosses(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	dims := tokens.Shape().Dimensions
	if len(dims) != 2 || dims[1] < 2 {
		exceptions.Panicf("llama: tokens have shape %s, want [batch, context+1]", tokens.Shape())
	}
	batch, context := dims[0], dims[1]-1
	inputs := graph.Slice(tokens, graph.AxisRange(), graph.AxisRange(0, context))
	targets := graph.Slice(tokens, graph.AxisRange(), graph.AxisRange(1, context+1))
	h := m.hidden(params, inputs, q)
	losses := crossEntropy(h, m.head(params), graph.Reshape(clampIDs(targets, m.config.Vocabulary), batch*context))
	return graph.Reshape(nanUnlessValid(losses, tokens, m.config.Vocabulary), batch, context)
}

// Logits implements [Model].
func (m *Llama) Logits(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	dims := tokens.Shape().Dimensions
	if len(dims) != 2 {
		exceptions.Panicf("llama: tokens have shape %s, want [batch, context]", tokens.Shape())
	}
	logits := linear(m.hidden(params, tokens, q), m.head(params))
	return graph.Reshape(logits, dims[0], dims[1], m.config.Vocabulary)
}

// head returns the output projection.
func (m *Llama) head(params []*graph.Node) *graph.Node { return params[len(params)-1] }

// hidden computes the normalized residual stream after the last block, [tokens, width].
func (m *Llama) hidden(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	if len(params) != len(m.params) {
		exceptions.Panicf("llama: got %d parameters, want %d", len(params), len(m.params))
	}
	for i, p := range params {
		if !sameDims(p.Shape().Dimensions, m.params[i].Dims) {
			exceptions.Panicf("llama: parameter %s has shape %s, want %v", m.params[i].Name, p.Shape(), m.params[i].Dims)
		}
	}
	batch, context := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	x := embed(params[paramEmbedding], graph.Reshape(clampIDs(tokens, m.config.Vocabulary), batch*context))
	rope := newRope(x.Graph(), m.config, batch, context)
	for layer := range m.config.Layers {
		start := paramBlocks + layer*blockParams
		x = m.block(x, params[start:start+blockParams], m.blockSites(layer, batch*context), rope, q)
	}
	return rmsNorm(x, params[len(params)-2], m.config.NormEpsilon)
}

// block adds attention and the feed-forward layer to the residual stream x.
func (m *Llama) block(x *graph.Node, w []*graph.Node, sites [4]ActivationSite, rope *rope, q ActivationQuantizer) *graph.Node {
	in := q.apply(sites[0], rmsNorm(x, w[blockAttentionNorm], m.config.NormEpsilon))
	mixed := q.apply(sites[1], attention(in, w[blockQKV], rope))
	x = graph.Add(x, linear(mixed, w[blockOut]))
	in = q.apply(sites[2], rmsNorm(x, w[blockMLPNorm], m.config.NormEpsilon))
	gated := q.apply(sites[3], swiGLU(linear(in, w[blockW1]), linear(in, w[blockW2])))
	return graph.Add(x, linear(gated, w[blockDown]))
}

// StepFLOPs returns 6·N·tokens for the products with weights, N counting all parameters but the embedding, plus
// 12·layers·width·context·tokens for attention without regard to causality: forward and backward.
func (m *Llama) StepFLOPs(batch, context int) float64 {
	tokens := float64(batch) * float64(context)
	weights := CountParams(m.params, func(p Param) bool { return p.Role != RoleEmbedding })
	return 6*float64(weights)*tokens + 12*float64(m.config.Layers)*float64(m.config.Width)*float64(context)*tokens
}
