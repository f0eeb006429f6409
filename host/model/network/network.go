// Package network writes language models as programs: what a model computes, from the table of
// features in package architecture, and nothing about how a device computes it. The gradient
// follows by package autodiff, and package reference evaluates both in binary64.
package network

import (
	"fmt"
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

	Teacher    = "teacher"       // the input with the logits of a teacher
	Divergence = "divergence"    // float[batch, context], with a teacher
	Entropy    = "cross_entropy" // float[batch, context], with a teacher
)

// Shape is the shape of a batch.
type Shape struct {
	Batch, Context int
	Documents      bool // rows hold several documents, and a weight for each target
	Head           Head
}

// Head says what the program of a model returns: the losses of a batch; or its logits; or, if there
// is a teacher, the losses of distillation, and divergences and cross-entropies.
type Head struct {
	Logits  bool
	Teacher *Distillation
}

// Quantizers are calls that quantize parameters and activations, by the name of the parameter or
// site. The first operand of each is the tensor, a matrix, and its first result the quantized one.
// A model's program has an input [InputOf] for each other operand.
type Quantizers map[string]*program.Call

// Key returns a text that differs for different quantizers.
func (q Quantizers) Key() string {
	var key strings.Builder
	for _, site := range slices.Sorted(maps.Keys(q)) {
		fmt.Fprintln(&key, site, q[site].Meaning.Hash())
		if back := q[site].Adjoint; back != nil {
			fmt.Fprintln(&key, back.Hash())
		}
	}
	return key.String()
}

// InputOf returns the name of the input of a model's program for an operand of a quantizer.
func InputOf(site, operand string) string { return site + "/" + operand }

// New returns the program of a model. A parameter that none of q quantizes is an input as products
// read it: in a training, where weights are quantized once for a step, it is Q(W), and the gradient
// with respect to it is that with respect to Q(W).
func New(s architecture.Settings, shape Shape, q Quantizers) (*program.Program, error) {
	s.FillIn()
	b := program.NewSimplifier(s.Kind)
	s.Context = shape.Context
	n := network{Settings: s, Builder: b, batch: shape.Batch, quantizers: q,
		params: map[string]value{}}
	dims := []int{shape.Batch, shape.Context + 1}
	if shape.Documents {
		dims = slices.Insert(dims, 1, dataset.Planes)
	}
	batch := b.Input(Tokens, program.Type{DType: program.Int, Shape: dims})
	for _, p := range s.Params() {
		n.params[p.Name] = b.Input(p.Name, program.FloatType(p.Dims...))
	}
	for _, site := range slices.Sorted(maps.Keys(q)) {
		for _, in := range q[site].Meaning.Inputs[1:] {
			name := InputOf(site, in.Name)
			n.params[name] = b.Input(name, in.Type)
		}
	}
	d, teacher := shape.Head.Teacher, value{}
	if d != nil {
		teacher = b.Input(Teacher, program.FloatType(shape.Batch*shape.Context, s.Vocab))
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
	case d != nil:
		losses := Distilling{*d, s.LogitCap}.losses(x, head, flat(1), teacher)
		for i, name := range []string{Losses, Divergence, Entropy} {
			b.Output(name, n.losses(losses[i], valid))
		}
	default:
		b.Output(Losses, n.losses(crossEntropy(x, head, flat(1), s.LogitCap), valid))
	}
	return b.Build()
}

type network struct {
	architecture.Settings // with the context of the batch
	*program.Builder
	batch      int
	quantizers Quantizers
	params     map[string]value // and the other operands of quantizers

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

// part writes a part of the model as a call. It reads the parameters with a prefix in their names,
// and with them the operands of quantizers; if sites is not nil, only those of these sites.
func (n *network) part(name string, x value, prefix string, sites []string,
	body func(n *network, x value) value) value {
	args, names := []value{x}, []string{"x"}
	for _, param := range slices.Sorted(maps.Keys(n.params)) {
		site, _, _ := strings.Cut(strings.TrimPrefix(param, prefix), "/")
		if strings.HasPrefix(param, prefix) && (sites == nil || slices.Contains(sites, site)) {
			args, names = append(args, n.params[param]), append(names, param)
		}
	}
	if n.segments.Valid() {
		args, names = append(args, n.segments), append(names, "segments")
	}
	return call(name, nil, strings.Join(names, " "), "y", func(in []value) []value {
		inner := *n
		inner.Builder, inner.params = in[0].Builder(), map[string]value{}
		for i, name := range names {
			inner.params[name] = in[i]
		}
		inner.segments = inner.params["segments"]
		return []value{body(&inner, in[0])}
	}, args...)[0]
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
	x = n.quantize(p+"mlp.input", x)
	a, b := linear(x, n.weight(p+"mlp.w1")), linear(x, n.weight(p+"mlp.w2"))
	activation := "silu"
	if n.GELU() {
		activation = "gelu"
	}
	return linear(n.quantize(p+"mlp.down.input", gatedUnit(activation, a, b)), n.weight(p+"mlp.down"))
}

// attention computes attention, and the output projection.
func (n *network) attention(p string, x value) value {
	sites := []string{"attn.qkv", "attn.qkv_bias", "attn.q_norm", "attn.k_norm", "attn.queries",
		"attn.keys", "attn.values"}
	mixed := n.part(SelfAttention, n.quantize(p+"attn.qkv.input", x), p, sites,
		func(n *network, x value) value { return n.mix(p, x) })
	return linear(n.quantize(p+"attn.out.input", mixed), n.weight(p+"attn.out"))
}

// mix computes the weighted sums of values, [N, heads·size].
func (n *network) mix(p string, x value) value {
	projected := linear(x, n.weight(p+"attn.qkv"))
	if bias, ok := n.params[p+"attn.qkv_bias"]; ok {
		projected = projected.Add(bias.Reshape(1, bias.Shape()[0]))
	}
	q, k, v := n.heads(p, projected)
	if n.RopePairs == architecture.Interleaved &&
		(n.quantizers[p+"attn.queries"] != nil || n.quantizers[p+"attn.keys"] != nil) {
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

// quantize returns what products read in place of a parameter or of an activation.
func (n *network) quantize(site string, x value) value {
	c, ok := n.quantizers[site]
	if !ok {
		return x
	}
	args := []value{x.Reshape(c.Meaning.Inputs[0].Type.Shape...)}
	if _, weight := n.params[site]; !weight && n.segments.Valid() {
		// Padding is zero, so that statistics over a batch do not depend on it.
		used := n.segments.Ge(n.ConstInt(0)).Convert(program.Float)
		args[0] = args[0].Mul(used.Reshape(n.batch*n.Context, 1))
	}
	for _, in := range c.Meaning.Inputs[1:] {
		args = append(args, n.params[InputOf(site, in.Name)])
	}
	return n.Call(c, args...)[0].Reshape(x.Shape()...)
}

// weight returns the quantized value of a parameter.
func (n *network) weight(name string) value { return n.quantize(name, n.params[name]) }

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
