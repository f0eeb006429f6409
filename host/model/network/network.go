// Package network writes language models as programs: what a model computes, from the table of
// features in package architecture, and nothing about how a device computes it. The gradient
// follows by package autodiff, and package reference evaluates both in binary64.
package network

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

type value = program.Value

// Names of the input of a program beside the model's parameters, which have their own names, and of
// its outputs.
const (
	Tokens = "tokens" // int[batch, context+1], or with documents the rows of package dataset
	Losses = "losses" // float[batch, context]: cross-entropies of the targets, in nats
	Logits = "logits" // float[batch·context, vocabulary]
)

// Shape is the shape of a batch.
type Shape struct {
	Batch, Context int
	Documents      bool // rows hold several documents, and a weight for each target
}

// A Quantizer returns what products read in place of a parameter or of an activation, by its name.
type Quantizer func(name string, x value) value

// New returns the program of a model. A nil quantizer leaves all as it is.
func New(s architecture.Settings, shape Shape, q Quantizer) (*program.Program, error) {
	s.FillIn()
	if q == nil {
		q = func(_ string, x value) value { return x }
	}
	b := program.NewBuilder(s.Kind)
	s.Context = shape.Context
	n := network{Settings: s, Builder: b, batch: shape.Batch, quantize: q, params: map[string]value{}}
	dims := []int{shape.Batch, shape.Context + 1}
	if shape.Documents {
		dims = slices.Insert(dims, 1, dataset.Planes)
	}
	batch := b.Input(Tokens, program.Type{DType: program.Int, Shape: dims})
	for _, p := range s.Params() {
		n.params[p.Name] = b.Input(p.Name, program.FloatType(p.Dims...))
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	tokens := n.read(batch)
	ids := tokens.Max(b.ConstInt(0)).Min(b.ConstInt(int32(s.Vocab - 1)))
	logits := n.logits(ids.At(1, 0, shape.Context).Reshape(shape.Batch * shape.Context))
	b.Output(Losses, n.losses(logits, ids.At(1, 1, shape.Context+1), tokens.Eq(ids)))
	b.Output(Logits, logits)
	return b.Build()
}

type network struct {
	architecture.Settings // with the context of the batch
	*program.Builder
	batch    int
	quantize Quantizer
	params   map[string]value

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

// logits computes the model: an embedding, blocks, a norm, and the head. tokens is [N], with N =
// batch·context.
func (n *network) logits(tokens value) value {
	x := tokens.Lookup(n.params["embedding"]).Scale(n.InputScale())
	for layer := range n.Layers {
		x = n.block(layer, x)
	}
	x = n.rmsNorm(x, "norm").Scale(n.LogitScale())
	head := "head"
	if n.Tied() {
		head = "embedding"
	}
	return n.cap(linear(n.quantize("head.input", x), n.weight(head)), n.LogitCap)
}

// block computes a block from the residual stream x [N, width]: attention, then the feed-forward
// layer, each added to the stream. Norms that a family does not have are left out.
func (n *network) block(layer int, x value) value {
	p := architecture.LayerPrefix(layer)
	add := func(branch func(prefix string, x value) value, before, after string) {
		if n.PostNorm() {
			before, after = "", before
		}
		y := branch(p, n.rmsNorm(x, p+before))
		x = x.Add(n.rmsNorm(y, p+after).Scale(n.ResidualScale()))
	}
	add(n.attention, "attn_norm", "attn_post_norm")
	add(n.feedForward, "mlp_norm", "mlp_post_norm")
	return x
}

// feedForward computes W₃·(act(W₁·x) ⊙ W₂·x).
func (n *network) feedForward(p string, x value) value {
	x = n.quantize(p+"mlp.input", x)
	a, b := linear(x, n.weight(p+"mlp.w1")), linear(x, n.weight(p+"mlp.w2"))
	act := silu
	if n.GELU() {
		act = gelu
	}
	return linear(n.quantize(p+"mlp.down.input", act(a).Mul(b)), n.weight(p+"mlp.down"))
}

// attention computes softmax(Q·Kᵀ)·V for each head, and the output projection. A head of keys and
// values belongs to a group of heads of queries.
func (n *network) attention(p string, x value) value {
	heads, keyHeads, size, layer := n.Heads, n.KVHeads, n.HeadSize, architecture.LayerOf(p)
	projected := linear(n.quantize(p+"attn.qkv.input", x), n.weight(p+"attn.qkv"))
	if bias, ok := n.params[p+"attn.qkv_bias"]; ok {
		projected = projected.Add(bias.Reshape(1, bias.Shape()[0]))
	}
	queries, keys := n.QueryWidth(), n.QueryWidth()+n.KeyWidth()
	q := n.headNorm(projected.At(1, 0, queries), p+"attn.q_norm")
	k := n.headNorm(projected.At(1, queries, keys), p+"attn.k_norm")
	v := projected.At(1, keys, keys+n.KeyWidth())

	q = n.quantize(p+"attn.queries", n.rotate(q.Reshape(n.batch, n.Context, heads, size), layer))
	k = n.quantize(p+"attn.keys", n.rotate(k.Reshape(n.batch, n.Context, keyHeads, size), layer))
	v = n.quantize(p+"attn.values", v.Reshape(n.batch, n.Context, keyHeads, size))
	q = q.Reshape(n.batch, n.Context, keyHeads, heads/keyHeads, size)

	// [batch, key heads, queries, group, keys]
	scores := q.Dot(k, [2][]int{{4}, {3}}, [2][]int{{0, 2}, {0, 2}}).Scale(n.ScoreScale())
	scores = n.visible(layer).Select(n.cap(scores, n.ScoreCap), n.Const(math.Inf(-1)))
	mixed := softmax(scores).Dot(v, [2][]int{{4}, {1}}, [2][]int{{0, 1}, {0, 2}})
	mixed = mixed.Transpose(0, 2, 1, 3, 4).Reshape(n.batch*n.Context, queries)
	return linear(n.quantize(p+"attn.out.input", mixed), n.weight(p+"attn.out"))
}

// visible reports which keys a query attends to, [batch or 1, 1, queries, 1, keys]: those up to it,
// in its window, and of its document.
func (n *network) visible(layer int) value {
	position := program.Type{DType: program.Int, Shape: []int{1, 1, n.Context, 1, n.Context}}
	query, key := n.Iota(position, 2), n.Iota(position, 4)
	seen := key.Le(query)
	if window := n.LayerWindow(layer, n.Context); window > 0 {
		seen = seen.And(query.Sub(key).Lt(n.ConstInt(int32(window))))
	}
	if n.weights.Valid() {
		of := func(queries, keys int) value { return n.segments.Reshape(n.batch, 1, queries, 1, keys) }
		seen = seen.And(of(n.Context, 1).Eq(of(1, n.Context)))
	}
	return seen
}

// rotate applies the rotary position embedding (Su et al., 2021) to x [batch, context, heads,
// size]: each pair of features of a head is rotated by the angle position·frequency.
func (n *network) rotate(x value, layer int) value {
	s, pairs := n.LayerRope(layer), n.HeadSize/2
	if s.RopeTheta == 0 {
		return x
	}
	split, part := []int{n.batch, n.Context, x.Shape()[2], 2, pairs}, 3
	if s.RopePairs == architecture.Interleaved {
		split, part = []int{n.batch, n.Context, x.Shape()[2], pairs, 2}, 4
	}
	table := func(f func(float64) float64) value {
		var values []float64
		for position := range n.Context {
			for _, frequency := range s.RopeFrequencies() {
				values = append(values, s.RopeMagnitude()*f(float64(position)*frequency))
			}
		}
		shape := []int{1, n.Context, 1, split[3], split[4]}
		shape[part] = 1
		return n.Table(values, shape...)
	}
	cos, sin := table(math.Cos), table(math.Sin)
	x = x.Reshape(split...)
	a, b := x.At(part, 0, 1), x.At(part, 1, 2)
	y := a.Mul(cos).Sub(b.Mul(sin)).Concatenate(part, b.Mul(cos).Add(a.Mul(sin)))
	return y.Reshape(n.batch, n.Context, split[2], n.HeadSize)
}

// losses returns the cross-entropies, [batch, context]. If an id is outside of the vocabulary, all
// are NaN.
func (n *network) losses(logits, targets, valid value) value {
	highest := logits.StopGradient().MaxRow()
	total := logits.Sub(highest).Exp().SumRow().Log().Add(highest)
	column := n.Iota(program.Type{DType: program.Int, Shape: logits.Shape()}, 1)
	chosen := column.Eq(targets.Reshape(n.batch*n.Context, 1)).Select(logits, n.Const(0)).SumRow()
	losses := total.Sub(chosen).Reshape(n.batch, n.Context)
	all := valid.Convert(program.Float).MinAll().Gt(n.Const(0))
	losses = all.Select(losses, n.Const(math.NaN()))
	if n.weights.Valid() {
		losses = losses.Mul(n.weights)
	}
	return losses
}

// weight returns the quantized value of a parameter.
func (n *network) weight(name string) value { return n.quantize(name, n.params[name]) }

// rmsNorm returns g ⊙ x/√(mean(x²) + ε) for each row of x, with the gain g; x if the model has no
// such norm.
func (n *network) rmsNorm(x value, name string) value {
	param, ok := n.params[name]
	if !ok {
		return x
	}
	gain := param.Shift(n.NormOffset()).Reshape(1, param.Shape()[0])
	return x.Div(x.Square().MeanRow().Shift(n.NormEps).Sqrt()).Mul(gain)
}

// headNorm is rmsNorm over the features that the gain has: those of a head, or of all heads of a
// token.
func (n *network) headNorm(x value, name string) value {
	param, ok := n.params[name]
	if !ok {
		return x
	}
	features := param.Shape()[0]
	rows := x.Reshape(n.batch*n.Context*x.Shape()[1]/features, features)
	return n.rmsNorm(rows, name).Reshape(x.Shape()...)
}

// cap returns c·tanh(x/c), or x if c is 0.
func (n *network) cap(x value, c float64) value {
	if c == 0 {
		return x
	}
	return x.Scale(1 / c).Tanh().Scale(c)
}

// linear returns x·wᵀ.
func linear(x, w value) value { return x.Dot(w, [2][]int{{1}, {1}}, [2][]int{}) }

func softmax(x value) value {
	e := x.Sub(x.StopGradient().MaxRow()).Exp()
	return e.Div(e.SumRow())
}

func silu(x value) value { return x.Div(x.Neg().Exp().Shift(1)) }

// gelu is the approximation by tanh (Hendrycks and Gimpel, 2016).
func gelu(x value) value {
	inner := x.Mul(x.Square().Scale(0.044715).Shift(1)).Scale(math.Sqrt(2 / math.Pi))
	return x.Mul(inner.Tanh().Shift(1)).Scale(0.5)
}
