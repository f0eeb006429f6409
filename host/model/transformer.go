package model

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/graphs"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// transformer is a language model: an embedding, blocks of causal attention with
// rotary position embeddings and a gated feed-forward layer, RMSNorm, and an output head.
type transformer struct {
	architecture.Settings
	Options
	params []architecture.Param
}

var _ Language = (*transformer)(nil)

func newTransformer(s architecture.Settings, o Options) *transformer {
	m := &transformer{Settings: s, Options: o, params: s.Params()}
	if o.Sites.Head {
		m.params[m.headIndex()].Quantized = true
	}
	return m
}

// Params implements [Model].
func (m *transformer) Params() []architecture.Param { return m.params }

// BatchDims implements [Model].
func (m *transformer) BatchDims(batch, context int) []int {
	if m.Documents {
		return []int{batch, dataset.Planes, context + 1}
	}
	return []int{batch, context + 1}
}

// ActivationSites implements [Model]. There are four per block: the inputs of the attention's fused
// projection, of its output projection, of the feed-forward layer's two input projections, which
// share one, and of its output projection. [Sites] adds others.
func (m *transformer) ActivationSites(batch, context int) []ActivationSite {
	var sites []ActivationSite
	for layer := range m.Layers {
		sites = append(sites, m.blockSites(layer, batch*context)...)
	}
	if m.Sites.Head {
		sites = append(sites, m.headSite(batch*context))
	}
	return sites
}

// blockSites lists the sites of a block, in the order of computation.
func (m *transformer) blockSites(layer, tokens int) []ActivationSite {
	prefix := architecture.LayerPrefix(layer)
	site := func(name string, width, heads int, feeds ...string) ActivationSite {
		for i := range feeds {
			feeds[i] = prefix + feeds[i]
		}
		return ActivationSite{Name: prefix + name, Kind: KindInput, Feeds: feeds, Tokens: tokens,
			Width: width, Heads: heads}
	}
	// operand returns an operand of attention, or the zero site if it is not quantized.
	operand := func(exists bool, kind SiteKind, name string, heads int) (s ActivationSite) {
		if exists {
			s = site(name, heads*m.HeadSize, heads)
			s.Kind = kind
		}
		return s
	}
	sites := []ActivationSite{
		site("attn.qkv.input", m.Width, 0, "attn.qkv"),
		operand(m.Sites.Queries, KindQuery, "attn.queries", m.Heads),
		operand(m.Sites.Keys, KindKey, "attn.keys", m.KVHeads),
		operand(m.Sites.Values, KindValue, "attn.values", m.KVHeads),
		site("attn.out.input", m.QueryWidth(), m.Heads, "attn.out"),
		site("mlp.input", m.Width, 0, "mlp.w1", "mlp.w2"),
		site("mlp.down.input", m.Hidden, 0, "mlp.down"),
	}
	return slices.DeleteFunc(sites, func(s ActivationSite) bool { return s.Name == "" })
}

// headSite returns the site of the head's input. A tied head's weight is also the embedding table,
// so it must not be rotated together with its input.
func (m *transformer) headSite(tokens int) ActivationSite {
	s := ActivationSite{Name: "head.input", Kind: KindHead, Tokens: tokens, Width: m.Width}
	if !m.Tied() {
		s.Feeds = []string{m.Head()}
	}
	return s
}

// Head implements [Language].
func (m *transformer) Head() string { return m.params[m.headIndex()].Name }

func (m *transformer) headIndex() int {
	if m.Tied() {
		return 0
	}
	return len(m.params) - 1
}

// StepFLOPs implements [Model].
func (m *transformer) StepFLOPs(batch, context int) float64 {
	tokens := float64(batch) * float64(context)
	weights := architecture.CountParams(m.params,
		func(p architecture.Param) bool { return p.Role != architecture.RoleEmbedding || m.Tied() })
	return 6*float64(weights)*tokens +
		12*float64(m.Layers)*float64(m.QueryWidth())*float64(context)*tokens
}

// BlockParams implements [Language].
func (m *transformer) BlockParams(block int) []architecture.Param {
	m.checkBlock(block)
	size := len(m.Settings.BlockParams(block))
	return m.params[1+block*size : 1+(block+1)*size]
}

// BlockSites implements [Language].
func (m *transformer) BlockSites(block, batch, context int) []ActivationSite {
	m.checkBlock(block)
	return m.blockSites(block, batch*context)
}

func (m *transformer) checkBlock(block int) {
	if block < 0 || block >= m.Layers {
		panic(fmt.Errorf("%s: block %d does not exist: there are %d", m.Kind, block, m.Layers))
	}
}

// CacheDims implements [Language].
func (m *transformer) CacheDims(batch, length int) []int {
	return []int{batch, m.KVHeads, length, m.HeadSize}
}

// Network implements [Language].
func (m *transformer) Network() architecture.Settings { return m.Settings }

// Program implements [Model].
func (m *transformer) Program(of ProgramOptions, wrt ...string) (*program.Program, error) {
	p, err := network.New(m.Settings, of.Shape, of.Quantizers)
	if err != nil {
		return nil, err
	}
	return network.Gradient(p, wrt...)
}

// Calls implements [Model].
func (m *transformer) Calls(shape network.Shape) stage.Calls {
	table := kernels.For(m.LossTokens)
	if shape.Task == network.Decode && shape.Context == 1 {
		table = kernels.ForFew()
	}
	return stage.Calls{Rounded: true, Rules: graphs.For(m.LossTokens), Kernels: table,
		Attention: network.Attention, Sums: kernels.Sums, Recompute: map[architecture.Recompute]string{
			architecture.RecomputeBlocks:    network.Block,
			architecture.RecomputeAttention: network.SelfAttention}[m.Recompute]}
}

// Labels implements [Language].
func (m *transformer) Labels(batches [][]int32, context int) float64 {
	sum, squares := 0.0, 0.0
	for _, b := range batches {
		if !m.Documents {
			n := float64(len(b) / (context + 1) * context)
			sum, squares = sum+n, squares+n
			continue
		}
		for _, r := range dataset.RowsOf(b, context) {
			for position := 1; position <= context; position++ {
				w := float64(r.Weight(position))
				sum, squares = sum+w, squares+w*w
			}
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares
}
