package model

import (
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
)

// transformer is a language model: an embedding, blocks of causal attention with
// rotary position embeddings and a feed-forward layer with SwiGLU, RMSNorm, and an output head.
type transformer struct {
	architecture.Settings
	Options
	params []architecture.Param
	plans  *sync.Map // of *plan.Plan, by key: executables that compute the same share one
	idle   *plan.Idle
}

var _ Language = (*transformer)(nil)

func newTransformer(s architecture.Settings, o Options) *transformer {
	m := &transformer{Settings: s, Options: o, params: s.Params(), plans: &sync.Map{},
		idle: &plan.Idle{}}
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
		sites = append(sites, m.blockSites(layer, batch*context).list()...)
	}
	if m.Sites.Head {
		sites = append(sites, m.headSite(batch*context))
	}
	return sites
}

// blockSites are the sites of a block, in the order of computation. Disabled sites are zero.
type blockSites [siteDown + 1]ActivationSite

// Indices in blockSites.
const (
	siteQKV = iota
	siteQuery
	siteKey
	siteValue
	siteOut
	siteMLP
	siteDown
)

func (s blockSites) list() []ActivationSite {
	return slices.DeleteFunc(s[:], func(a ActivationSite) bool { return a.Name == "" })
}

func (m *transformer) blockSites(layer, tokens int) blockSites {
	prefix := architecture.LayerPrefix(layer)
	site := func(name string, width, heads int, feeds ...string) ActivationSite {
		for i := range feeds {
			feeds[i] = prefix + feeds[i]
		}
		return ActivationSite{Name: prefix + name, Kind: KindInput, Feeds: feeds, Tokens: tokens,
			Width: width, Heads: heads}
	}
	operand := func(exists bool, kind SiteKind, name string, heads int) (s ActivationSite) {
		if exists {
			s = site(name, heads*m.HeadSize, heads)
			s.Kind = kind
		}
		return s
	}
	return blockSites{
		siteQKV:   site("attn.qkv.input", m.Width, 0, "attn.qkv"),
		siteQuery: operand(m.Sites.Queries, KindQuery, "attn.queries", m.Heads),
		siteKey:   operand(m.Sites.Keys, KindKey, "attn.keys", m.KVHeads),
		siteValue: operand(m.Sites.Values, KindValue, "attn.values", m.KVHeads),
		siteOut:   site("attn.out.input", m.QueryWidth(), m.Heads, "attn.out"),
		siteMLP:   site("mlp.input", m.Width, 0, "mlp.w1", "mlp.w2"),
		siteDown:  site("mlp.down.input", m.Hidden, 0, "mlp.down"),
	}
}

// headSite returns the site of the head's input. A tied head's weight is also the embedding table,
// so it must not be rotated together with its input.
func (m *transformer) headSite(tokens int) ActivationSite {
	s := ActivationSite{Name: "head.input", Kind: KindHead, Tokens: tokens, Width: m.Width}
	if !m.Tied() {
		s.Feeds = []string{m.params[m.headIndex()].Name}
	}
	return s
}

// Losses implements [Model].
func (m *transformer) Losses(params []*graph.Node, batch *graph.Node,
	q ActivationQuantizer) *graph.Node {
	in, h := m.readHidden(params, batch, q)
	targets := m.targets(in)
	return m.weightLosses(crossEntropy(m.chunks(targets.Shape().Size()), h, m.head(params), targets),
		in)
}

// readHidden reads a batch, and computes the final hidden states of all of its tokens but the last.
func (m *transformer) readHidden(params []*graph.Node, batch *graph.Node,
	q ActivationQuantizer) (in sequences, h *graph.Node) {
	dims, rows, context := batch.Shape().Dimensions, 0, 0
	if len(dims) >= 2 && dims[len(dims)-1] >= 2 {
		rows, context = dims[0], dims[len(dims)-1]-1
	}
	if context == 0 || !slices.Equal(dims, m.BatchDims(rows, context)) {
		want := "[batch, context+1]"
		if m.Documents {
			want = "[batch, 3, context+1]"
		}
		exceptions.Panicf("%s: tokens have shape %s, want %s", m.Kind, batch.Shape(), want)
	}
	in = m.readBatch(batch)
	inputs := graph.Slice(in.tokens, graph.AxisRange(), graph.AxisRange(0, context))
	return in, m.hidden(params, inputs, in.segments, q)
}

func (m *transformer) targets(in sequences) *graph.Node {
	targets := graph.Slice(in.tokens, graph.AxisRange(), graph.AxisRangeToEnd(1))
	return graph.Reshape(clampIDs(targets, m.Vocab), -1)
}

// weightLosses returns losses [batch·context] as [batch, context], multiplied by the weights of
// their targets. If an id is outside the vocabulary, all of them are NaN.
func (m *transformer) weightLosses(losses *graph.Node, in sequences) *graph.Node {
	dims := in.tokens.Shape().Dimensions
	g, ids := losses.Graph(), in.tokens
	wrong := graph.ConvertDType(graph.NotEqual(ids, clampIDs(ids, m.Vocab)), dtypes.Int32)
	nan := graph.BroadcastToShape(graph.Scalar(g, losses.DType(), math.NaN()), losses.Shape())
	valid := graph.Equal(graph.ReduceAllMax(wrong), graph.Scalar(g, dtypes.Int32, 0))
	losses = graph.Reshape(graph.Where(valid, losses, nan), dims[0], dims[1]-1)
	if in.weights == nil {
		return losses
	}
	return graph.Mul(losses, in.weights)
}

// head returns the output head. The gradient of a tied head is the sum over both uses.
func (m *transformer) head(params []*graph.Node) outputHead {
	return outputHead{params[m.headIndex()], m.LogitCap}
}

// Head implements [Language].
func (m *transformer) Head() string { return m.params[m.headIndex()].Name }

func (m *transformer) headIndex() int {
	if m.Tied() {
		return 0
	}
	return len(m.params) - 1
}

// hidden computes the input of the head, which is the normalized residual stream after the last
// block, [tokens, width]. segments are the document numbers of the tokens, nil if each row is one
// document.
func (m *transformer) hidden(params []*graph.Node, tokens, segments *graph.Node,
	q ActivationQuantizer) *graph.Node {
	m.checkParams(params)
	batch, context := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	r := newAttentionLayers(tokens.Graph(), m.Settings, batch, context, segments)
	r.recompute = m.Recompute == architecture.RecomputeAttention
	return m.blocks(params, tokens, r, q.zeroPadding(segments),
		func(_ int, block func() *graph.Node) *graph.Node { return block() })
}

// blocks is like hidden, with the given attention layers. It calls wrap to compute each block.
func (m *transformer) blocks(params []*graph.Node, tokens *graph.Node, r *attentionLayers,
	q ActivationQuantizer,
	wrap func(layer int, block func() *graph.Node) *graph.Node) *graph.Node {
	ids := graph.Reshape(clampIDs(tokens, m.Vocab), r.batch*r.context, 1)
	x := graph.Gather(params[0], ids)
	if scale := m.InputScale(); scale != 1 {
		x = graph.MulScalar(x, scale)
	}
	norm := len(params) - 1
	if !m.Tied() {
		norm-- // the head comes after it
	}
	blocks := params[1:norm]
	size := len(blocks) / m.Layers
	for layer := range m.Layers {
		sites := m.blockSites(layer, r.batch*r.context)
		in := append([]*graph.Node{x}, blocks[layer*size:(layer+1)*size]...)
		r := r.at(m.Settings, layer)
		block := func(in []*graph.Node) *graph.Node { return m.block(in[0], in[1:], sites, r, q) }
		x = wrap(layer, func() *graph.Node {
			if m.Recompute == architecture.RecomputeBlocks {
				return engine.Checkpoint(block, in...)
			}
			return block(in)
		})
	}
	gain := m.gain(params[norm])
	if scale := m.LogitScale(); scale != 1 {
		gain = graph.MulScalar(gain, scale)
	}
	x = rmsNorm(x, gain, m.NormEps)
	if m.Sites.Head {
		return q.apply(m.headSite(r.batch*r.context), x)
	}
	return x
}

func (m *transformer) checkParams(params []*graph.Node) {
	if len(params) != len(m.params) {
		exceptions.Panicf("%s: got %d parameters, want %d", m.Kind, len(params), len(m.params))
	}
	for i, p := range params {
		if dims := p.Shape().Dimensions; !slices.Equal(dims, m.params[i].Dims) {
			exceptions.Panicf("%s: parameter %s has shape %s, want %v", m.Kind, m.params[i].Name, p.Shape(),
				m.params[i].Dims)
		}
	}
}

// gain returns the gain of a norm.
func (m *transformer) gain(param *graph.Node) *graph.Node {
	if offset := m.NormOffset(); offset != 0 {
		return graph.AddScalar(param, offset)
	}
	return param
}

// block computes a block from the residual stream x and the values of its parameters.
func (m *transformer) block(x *graph.Node, params []*graph.Node, sites blockSites,
	r *attentionLayers, q ActivationQuantizer) *graph.Node {
	w := map[string]*graph.Node{}
	for i, p := range m.Settings.BlockParams(0) {
		value := params[i]
		if p.Role == architecture.RoleNorm {
			value = m.gain(value)
		}
		w[strings.TrimPrefix(p.Name, architecture.LayerPrefix(0))] = value
	}
	attend := func(x *graph.Node) *graph.Node {
		more := qkvParams{bias: w["attn.qkv_bias"], query: w["attn.q_norm"], key: w["attn.k_norm"],
			epsilon: m.NormEps}
		mixed := attend(q.apply(sites[siteQKV], x), w["attn.qkv"], more, r, sites, q)
		return q.apply(sites[siteOut], mixed)
	}
	gate := func(x *graph.Node) *graph.Node { // silu(W1·x) ⊙ W2·x, or gelu(W1·x) ⊙ W2·x
		x = q.apply(sites[siteMLP], x)
		a, b := linearRounded(x, w["mlp.w1"]), linearRounded(x, w["mlp.w2"])
		if m.GELU() {
			return q.apply(sites[siteDown], geGLU(a, b))
		}
		return q.apply(sites[siteDown], swiGLU(a, b))
	}
	normed := func(x *graph.Node, norm string) *graph.Node {
		if gain, ok := w[norm]; ok {
			return rmsNorm(x, gain, m.NormEps)
		}
		return x
	}
	// add adds the output of a layer to the residual stream; norms that the model lacks are left out.
	add := func(layer func(*graph.Node) *graph.Node, before, weight, after string) {
		y := normed(linear(layer(normed(x, before)), w[weight]), after)
		if scale := m.ResidualScale(); scale != 1 {
			y = graph.MulScalar(y, scale)
		}
		x = graph.Add(x, y)
	}
	switch {
	case m.PostNorm():
		add(attend, "", "attn.out", "attn_norm")
		add(gate, "", "mlp.down", "mlp_norm")
		return x
	case m.BothNorms(), m.ResidualScale() != 1:
		add(attend, "attn_norm", "attn.out", "attn_post_norm")
		add(gate, "mlp_norm", "mlp.down", "mlp_post_norm")
		return x
	}
	var attention, mlp branch
	in := attention.norm(x, w["attn_norm"], m.NormEps)
	x = attention.add(x, attend(in), w["attn.out"])
	in = mlp.norm(x, w["mlp_norm"], m.NormEps)
	return mlp.add(x, gate(in), w["mlp.down"])
}

// StepFLOPs implements [Model].
func (m *transformer) StepFLOPs(batch, context int) float64 {
	tokens := float64(batch) * float64(context)
	weights := architecture.CountParams(m.params,
		func(p architecture.Param) bool { return p.Role != architecture.RoleEmbedding || m.Tied() })
	return 6*float64(weights)*tokens +
		12*float64(m.Layers)*float64(m.QueryWidth())*float64(context)*tokens
}

// Blocks implements [Language].
func (m *transformer) Blocks() int { return m.Layers }

// BlockParams implements [Language].
func (m *transformer) BlockParams(block int) []architecture.Param {
	m.checkBlock(block)
	size := len(m.Settings.BlockParams(block))
	return m.params[1+block*size : 1+(block+1)*size]
}

// BlockSites implements [Language].
func (m *transformer) BlockSites(block, batch, context int) []ActivationSite {
	m.checkBlock(block)
	return m.blockSites(block, batch*context).list()
}

func (m *transformer) checkBlock(block int) {
	if block < 0 || block >= m.Layers {
		exceptions.Panicf("%s: block %d does not exist: there are %d", m.Kind, block, m.Layers)
	}
}

// Block implements [Language].
func (m *transformer) Block(block int, params []*graph.Node, x, segments *graph.Node, batch,
	context int, q ActivationQuantizer) *graph.Node {
	if want := m.BlockParams(block); len(params) != len(want) {
		exceptions.Panicf("%s: got %d parameters of a block, want %d", m.Kind, len(params), len(want))
	}
	r := newAttentionLayers(x.Graph(), m.Settings, batch, context, segments).at(m.Settings, block)
	return m.block(x, params, m.blockSites(block, batch*context), r, q.zeroPadding(segments))
}
