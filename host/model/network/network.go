// Package network writes language models as programs: what a model computes, from the table of
// features in package architecture, and nothing about how a device computes it. The gradient
// follows by package autodiff, and package reference evaluates both in binary64.
package network

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

type value = program.Value

// Names of the input of a program beside the model's parameters, which have their own names, and of
// its outputs.
const (
	Tokens = "tokens" // int[batch, context+1], or with documents the rows of package dataset
	Losses = "losses" // float[batch, context]: weighted cross-entropies of the targets, in nats
	Logits = "logits" // float[batch·context, vocabulary], in place of losses

	Key        = "key"           // uint[2], the random key of drawn targets
	Divergence = "divergence"    // float[batch, context], with a teacher
	Entropy    = "cross_entropy" // float[batch, context], with a teacher
)

// Shape is the shape of a batch.
type Shape struct {
	Batch, Context int
	Documents      bool // rows hold several documents, and a weight for each target
	Head           Head
}

// Head says what the program of a model returns: the losses of a batch; or its logits; or the
// losses with targets that are drawn from the predictions; or, if there is a teacher, the losses of
// distillation, and divergences and cross-entropies.
type Head struct {
	Logits, Sampled bool
	Teacher         Teacher
}

// New returns the program of a model. A parameter that none of q quantizes is an input as products
// read it: in a training, where weights are quantized once for a step, it is Q(W), and the gradient
// with respect to it is that with respect to Q(W).
func New(s architecture.Settings, shape Shape, q Quantizers) (*program.Program, error) {
	s.FillIn()
	b := program.NewSimplifier(s.Kind)
	s.Context = shape.Context
	n := network{Settings: s, Builder: b, batch: shape.Batch, quantizers: q,
		params: map[string]value{}, states: &states{}}
	dims := []int{shape.Batch, shape.Context + 1}
	if shape.Documents {
		dims = slices.Insert(dims, 1, dataset.Planes)
	}
	batch := b.Input(Tokens, program.Type{DType: program.Int, Shape: dims})
	for _, p := range s.Params() {
		n.params[p.Name] = b.Input(p.Name, program.FloatType(p.Dims...))
	}
	for _, in := range q.inputs(s.Params()) {
		n.params[in.Name] = b.Input(in.Name, in.Type)
	}
	teacher, key := n.teacher(shape.Head.Teacher), value{}
	if shape.Head.Sampled {
		key = b.Input(Key, program.Type{DType: program.Uint, Shape: []int{2}})
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	tokens := n.read(batch)
	ids := tokens.Max(b.ConstInt(0)).Min(b.ConstInt(int32(s.Vocab - 1)))
	flat := func(first int) value {
		return ids.At(1, first, first+shape.Context).Reshape(shape.Batch * shape.Context)
	}
	x, head := n.hidden(flat(0))
	valid := tokens.Eq(ids)
	switch {
	case shape.Head.Logits:
		b.Output(Logits, capped(linear(x, head), s.LogitCap))
	case teacher != nil:
		teacher.segments = n.segments
		teacherX, teacherHead := teacher.hidden(flat(0))
		how := Distilling{shape.Head.Teacher.Distillation, s.LogitCap, teacher.LogitCap}
		losses := how.losses(x, head, flat(1), teacherX, teacherHead)
		for i, name := range []string{Losses, Divergence, Entropy} {
			b.Output(name, n.losses(losses[i], valid))
		}
	default:
		targets := flat(1)
		if shape.Head.Sampled {
			targets = draw(x, head, key, s.LogitCap)
		}
		b.Output(Losses, n.losses(crossEntropy(x, head, targets, s.LogitCap), valid))
	}
	for i, name := range n.states.names {
		b.Output(name, n.states.values[i])
	}
	return b.Build()
}

type network struct {
	architecture.Settings // with the context of the batch
	*program.Builder
	batch      int
	quantizers Quantizers
	params     map[string]value // and the other operands of quantizers
	states     *states          // the next ones of quantizers

	segments value // int[batch, context]: the document of each token but the last, if there are some
	weights  value // float[batch, context]: those of the targets
}

// read returns the tokens of a batch, [batch, context+1].
func (n *network) read(batch value) value {
	if len(batch.Shape()) == 2 {
		return batch
	}
	plane := func(i int) value { return batch.At(1, i, i+1).Reshape(n.batch, n.Context+1) }
	n.segments = plane(1).At(1, 0, n.Context)
	n.weights = plane(2).At(1, 1, n.Context+1).Bitcast(program.Float)
	return plane(0)
}

// hidden computes the model but its head, whose input and weight it returns: an embedding, blocks,
// and a norm. tokens is [N], with N = batch·context.
func (n *network) hidden(tokens value) (x, head value) {
	x = tokens.Lookup(n.weight("embedding")).Scale(n.InputScale())
	for layer := range n.Layers {
		x = n.part(Block, x, architecture.LayerPrefix(layer), nil,
			func(n *network, x value) value { return n.block(layer, x) })
	}
	x = n.norm(x, "norm").Scale(n.LogitScale())
	name := "head"
	if n.Tied() {
		name = "embedding"
	}
	return n.quantize("head.input", x), n.weight(name)
}

// states are results of the quantizers in a program or a part of it.
type states struct {
	names  []string
	values []value
}

// part writes a part of the model as a call. It reads the parameters with a prefix in their names,
// and with them the operands of quantizers; if sites is not nil, only those of these sites. Its
// results are that of body and the next states of quantizers.
func (n *network) part(name string, x value, prefix string, sites []string,
	body func(n *network, x value) value) value {
	args, names := []value{x}, []string{"x"}
	for _, param := range slices.Sorted(maps.Keys(n.params)) {
		site, in := strings.CutPrefix(ownerOf(param), prefix)
		if in && (sites == nil || slices.Contains(sites, site)) {
			args, names = append(args, n.params[param]), append(names, param)
		}
	}
	if n.segments.Valid() {
		args, names = append(args, n.segments), append(names, "segments")
	}
	var inner network
	results := callNamed(name, nil, names, func(in []value) ([]string, []value) {
		inner = *n
		inner.Builder, inner.params, inner.states = in[0].Builder(), map[string]value{}, &states{}
		for i, name := range names {
			inner.params[name] = in[i]
		}
		inner.segments = inner.params["segments"]
		y := body(&inner, in[0])
		return append([]string{"y"}, inner.states.names...), append([]value{y}, inner.states.values...)
	}, args...)
	n.states.names = append(n.states.names, inner.states.names...)
	n.states.values = append(n.states.values, results[1:]...)
	return results[0]
}

// block computes a block from the residual stream x [N, width]: attention, then the feed-forward
// layer, each added to the stream. Norms that a family does not have are left out.
func (n *network) block(layer int, x value) value {
	p := architecture.LayerPrefix(layer)
	add := func(branch func(prefix string, x value) value, before, after string) {
		if n.PostNorm() {
			before, after = "", before
		}
		y := branch(p, n.norm(x, p+before))
		x = x.Add(n.norm(y, p+after).Scale(n.ResidualScale()))
	}
	add(n.attention, "attn_norm", "attn_post_norm")
	add(n.feedForward, "mlp_norm", "mlp_post_norm")
	return x
}

// feedForward computes down·(act(w1·x) ⊙ w2·x).
func (n *network) feedForward(p string, x value) value {
	ab := n.linear(p, "mlp.input", x, "mlp.w1", "mlp.w2")
	activation := "silu"
	if n.GELU() {
		activation = "gelu"
	}
	return n.linear(p, "mlp.down.input", gatedUnit(activation, ab[0], ab[1]), "mlp.down")[0]
}

// attention computes attention, and the output projection.
func (n *network) attention(p string, x value) value {
	sites := []string{"attn.qkv.input", "attn.qkv", "attn.qkv_bias", "attn.q_norm", "attn.k_norm",
		"attn.queries", "attn.keys", "attn.values"}
	mixed := n.part(SelfAttention, x, p, sites,
		func(n *network, x value) value { return n.mix(p, x) })
	return n.linear(p, "attn.out.input", mixed, "attn.out")[0]
}

// mix computes the weighted sums of values, [N, heads·size].
func (n *network) mix(p string, x value) value {
	projected := n.linear(p, "attn.qkv.input", x, "attn.qkv")[0]
	if bias, ok := n.params[p+"attn.qkv_bias"]; ok {
		projected = projected.Add(bias.Reshape(1, bias.Shape()[0]))
	}
	q, k, v := n.heads(p, projected)
	if n.RopePairs == architecture.Interleaved &&
		(n.quantizers.Calls[p+"attn.queries"] != nil || n.quantizers.Calls[p+"attn.keys"] != nil) {
		q, k = n.halves(q), n.halves(k)
	}
	q, k, v = n.quantize(p+"attn.queries", q), n.quantize(p+"attn.keys", k),
		n.quantize(p+"attn.values", v)
	how := Attending{n.LayerWindow(architecture.LayerOf(p), n.Context), n.ScoreScale(), n.ScoreCap}
	return how.attend(q, k, v, n.segments).Reshape(n.batch*n.Context, n.QueryWidth())
}

// heads returns queries, keys and values, [batch, context, heads, size]. Queries and keys may be
// normalized, and are rotated by their positions.
func (n *network) heads(p string, projected value) (q, k, v value) {
	s := n.LayerRope(architecture.LayerOf(p))
	table := func(f func(float64) float64) value {
		wide := func(v float32) float64 { return float64(v) }
		return n.Table(lists.Map(s.ByPosition(n.Context, f), wide), n.Context, n.HeadSize/2)
	}
	cos, sin := table(math.Cos), table(math.Sin)
	split := func(x value, parts ...int) []value {
		h := Heads{n.batch, n.Context, n.HeadSize, parts, 2, s.RopePairs == architecture.Interleaved}
		return h.rope(x, cos, sin)
	}
	if _, ok := n.params[p+"attn.q_norm"]; !ok {
		all := split(projected, n.Heads, n.KVHeads, n.KVHeads)
		return all[0], all[1], all[2]
	}
	queries, keys := n.QueryWidth(), n.QueryWidth()+n.KeyWidth()
	q = split(n.norm(projected.At(1, 0, queries), p+"attn.q_norm"), n.Heads)[0]
	k = split(n.norm(projected.At(1, queries, keys), p+"attn.k_norm"), n.KVHeads)[0]
	v = projected.At(1, keys, keys+n.KeyWidth()).Reshape(n.batch, n.Context, n.KVHeads, n.HeadSize)
	return q, k, v
}

// halves puts the first features of all pairs of a head before the second ones, which is the order
// in which queries and keys are quantized.
func (n *network) halves(x value) value {
	s := x.Shape()
	return x.Reshape(s[0], s[1], s[2], s[3]/2, 2).Transpose(0, 1, 2, 4, 3).Reshape(s...)
}

// losses returns the losses [N] as [batch, context], times their weights. If an id is outside of
// the vocabulary, all are NaN.
func (n *network) losses(losses, valid value) value {
	losses = losses.Reshape(n.batch, n.Context)
	all := valid.Convert(program.Float).MinAll().Gt(n.Const(0))
	losses = all.Select(losses, n.Const(math.NaN()))
	if n.weights.Valid() {
		losses = losses.Mul(n.weights)
	}
	return losses
}

// norm is [rmsNorm] with the gain of that name, over as many features as the gain has: those of a
// row, or of each head in it. It returns x if the model has no such norm.
func (n *network) norm(x value, name string) value {
	param, ok := n.params[name]
	if !ok {
		return x
	}
	features := param.Shape()[0]
	if offset := n.NormOffset(); offset != 0 {
		param = param.Shift(offset)
	}
	rows, gain := x.Reshape(int(x.Type().Size())/features, features), param.Reshape(1, features)
	return rmsNorm(rows, gain, n.NormEps).Reshape(x.Shape()...)
}
