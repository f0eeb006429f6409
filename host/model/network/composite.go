package network

import (
	"math"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// Names of the calls in the program of a model, which executors may compute by kernels.
const (
	Linear    = "linear"    // x·wᵀ
	OfCodes   = "of_codes"  // the same, with the integers and scales that x and w are made of
	RMSNorm   = "rms_norm"  // of each row, times a gain; its setting is ε
	Rope      = "rope"      // of the heads in rows; its setting is [Heads]
	Attention = "attention" // its setting is [Attending]
	// the same over the parts of rows, and over caches
	PartAttention   = "attention_of_parts"
	CachedAttention = "cached_attention"
	GatedUnit       = "gated_unit"    // silu(a) ⊙ b, or gelu(a) ⊙ b; its setting is "silu" or "gelu"
	CrossEntropy    = "cross_entropy" // of a head's logits; its setting is their cap, 0 for none
	Draw            = "draw"          // of targets from a head's logits; its setting is their cap
	Scores          = "scores"        // of targets by a head's logits; its setting is their cap
	// of a head's logits and a teacher's; its setting is [Distilling]
	SoftmaxDistillation = "softmax_distillation"

	// Parts, which consist of other calls, and which a backward pass may compute again.
	Block         = "block"
	SelfAttention = "self_attention" // from the input of a block's attention to the sums of values
)

// Heads says how rows [batch·context, features] divide into heads.
type Heads struct {
	Batch, Context, Size int
	Parts                []int // the numbers of heads of consecutive parts, each a result of the call
	Rotated              int   // the number of parts that are rotated
	Adjacent             bool  // pairs of features are adjacent, instead of half a head apart
}

// Attending says which keys a query attends to, and how scores are made of products.
type Attending struct {
	Window     int // the keys of a query, its own included; 0: all up to it
	Scale, Cap float64
}

// call writes a call with operands args; meaning writes its program. ins and outs are the names of
// operands and results; surplus names are ignored.
func call(name string, setting any, ins, outs string, meaning func(in []value) []value,
	args ...value) []value {
	return callNamed(name, setting, strings.Fields(ins), func(in []value) ([]string, []value) {
		return strings.Fields(outs), meaning(in)
	}, args...)
}

// callNamed is like call, but meaning also returns the names of results.
func callNamed(name string, setting any, ins []string, meaning func(in []value) ([]string, []value),
	args ...value) []value {
	b := args[0].Builder()
	p, results, err := written(name, ins, meaning, args...)
	if err != nil {
		b.Fail(err)
		return results
	}
	return b.Call(&program.Call{Name: name, Setting: setting, Meaning: p}, args...)
}

// written returns the program of what meaning computes from values like args, and its results.
func written(name string, ins []string, meaning func(in []value) ([]string, []value),
	args ...value) (p *program.Program, results []value, err error) {
	own, in := program.NewSimplifier(name), make([]value, len(args))
	for i, arg := range args {
		in[i] = own.Input(ins[i], arg.Type())
	}
	outs, results := meaning(in)
	for i, v := range results {
		own.Output(outs[i], v)
	}
	p, err = own.Build()
	return p, results, err
}

// linear returns x·wᵀ.
func linear(x, w value) value {
	return call(Linear, nil, "x w", "y", func(in []value) []value {
		return []value{in[0].Dot(in[1], [2][]int{{1}, {1}}, [2][]int{})}
	}, x, w)[0]
}

// ofCodes is linear with operands that are codes times scales.
func ofCodes(x, w value, ofX, ofW codes) value {
	return call(OfCodes, nil, "x w x_integers x_scale w_integers w_scale", "y",
		func(in []value) []value { return []value{linear(in[0], in[1])} },
		x, w, ofX.integers.StopGradient(), ofX.scale.StopGradient(), ofW.integers, ofW.scale)[0]
}

// codes are integers from −128 to 127 and the scales of rows, whose products are a matrix.
type codes struct{ integers, scale value }

// rmsNorm returns g ⊙ x/√(mean(x²) + ε) for each row of x, with the gain g [1, features].
func rmsNorm(x, gain value, epsilon float64) value {
	return call(RMSNorm, epsilon, "x gain", "y", func(in []value) []value {
		x := in[0]
		return []value{x.Div(x.Square().MeanRow().Shift(epsilon).Sqrt()).Mul(in[1])}
	}, x, gain)[0]
}

// gatedUnit returns silu(a) ⊙ b, or gelu(a) ⊙ b.
func gatedUnit(activation string, a, b value) value {
	return call(GatedUnit, activation, "a b", "y", func(in []value) []value {
		of := map[string]func(value) value{"silu": silu, "gelu": gelu}[activation]
		return []value{of(in[0]).Mul(in[1])}
	}, a, b)[0]
}

// silu returns x·σ(x), with the logistic function as ½ + ½·tanh(x/2): its derivative does not
// overflow.
func silu(x value) value { return x.Mul(x.Scale(0.5).Tanh().Shift(1).Scale(0.5)) }

// gelu is the approximation by tanh (Hendrycks and Gimpel, 2016).
func gelu(x value) value {
	inner := x.Mul(x.Square().Scale(0.044715).Shift(1)).Scale(math.Sqrt(2 / math.Pi))
	return x.Mul(inner.Tanh().Shift(1)).Scale(0.5)
}

// rope divides rows into heads, [batch, context, heads, size] for each part, and applies the rotary
// position embedding (Su et al., 2021) to the first parts: each pair of features of a head is
// rotated by the angle of its position, whose cosine and sine are given, [context, size/2].
func (h Heads) rope(x, cos, sin value) []value {
	return call(Rope, h, "x cos sin", "q k v", func(in []value) (out []value) {
		column := 0
		for i, heads := range h.Parts {
			part := in[0].At(1, column, column+heads*h.Size).Reshape(h.Batch, h.Context, heads, h.Size)
			if column += heads * h.Size; i < h.Rotated {
				part = h.rotate(part, in[1], in[2])
			}
			out = append(out, part)
		}
		return out
	}, x, cos, sin)
}

func (h Heads) rotate(x, cos, sin value) value {
	pairs, shape := h.Size/2, x.Shape()
	split, table, part := []int{h.Batch, h.Context, shape[2], 2, pairs},
		[]int{1, h.Context, 1, 1, pairs}, 3
	if h.Adjacent {
		split, table, part = []int{h.Batch, h.Context, shape[2], pairs, 2},
			[]int{1, h.Context, 1, pairs, 1}, 4
	}
	cos, sin, x = cos.Reshape(table...), sin.Reshape(table...), x.Reshape(split...)
	a, b := x.At(part, 0, 1), x.At(part, 1, 2)
	y := a.Mul(cos).Sub(b.Mul(sin)).Concatenate(part, b.Mul(cos).Add(a.Mul(sin)))
	return y.Reshape(shape...)
}

// attend computes the weighted sums of values, [batch, context, heads, size], in a layer.
func (n *network) attend(p string, q, k, v value) value {
	_, length := n.positions()
	a := Attending{n.LayerWindow(architecture.LayerOf(p), length), n.ScoreScale(), n.ScoreCap}
	if start, ok := n.shared[Start]; ok {
		names := []string{p + keyCache, p + valueCache}
		out := call(CachedAttention, a, "q k v keys values start first", "y next_keys next_values",
			a.cached, q, k, v, n.params[names[0]], n.params[names[1]], start, n.shared[First])
		n.result(names[0], out[1])
		n.result(names[1], out[2])
		return out[0]
	}
	if positions, ok := n.shared[Positions]; ok {
		return call(PartAttention, a, "q k v positions parts", "y", a.parts, q, k, v, positions,
			n.shared[Parts])[0]
	}
	args := []value{q, k, v}
	if segments, ok := n.shared[Segments]; ok {
		args = append(args, segments)
	}
	return call(Attention, a, "q k v segments", "y", a.whole, args...)[0]
}

// whole attends to the tokens of a sequence before each or, with segments, to those of its
// document.
func (a Attending) whole(in []value) []value {
	shape := in[0].Shape()
	position := func(axis int) value { return place(in[0].Builder(), shape[1], shape[1], axis) }
	seen := a.visible(position(2), position(4))
	for _, s := range in[3:] {
		seen = seen.And(ofQueries(s).Eq(ofKeys(s)))
	}
	return []value{a.weigh(in[0], in[1], in[2], seen)}
}

// parts attends to the context of a part and the tokens before in it.
func (a Attending) parts(in []value) []value {
	shape, b := in[0].Shape(), in[0].Builder()
	earlier := place(b, shape[1], shape[1], 4).Le(place(b, shape[1], shape[1], 2))
	own := ofQueries(in[4]).Eq(ofKeys(in[4])).Or(ofKeys(in[4]).Eq(b.ConstInt(0)))
	seen := earlier.And(own).And(a.visible(ofQueries(in[3]), ofKeys(in[3])))
	return []value{a.weigh(in[0], in[1], in[2], seen)}
}

// cached adds keys and values to caches, [batch, key heads, length, size], and attends to these.
func (a Attending) cached(in []value) []value {
	b, n, length := in[0].Builder(), in[0].Shape()[1], in[3].Shape()[2]
	start, first := in[5], in[6]
	query, key := place(b, n, length, 2).Add(start), place(b, n, length, 4)
	at := query.Eq(key) // of each token in the caches
	added := at.Convert(program.Float).Reshape(n, length)
	kept := key.Lt(start).Or(key.Ge(start.Add(b.ConstInt(int32(n))))).At(2, 0, 1)
	store := func(cache, x value) value {
		x = x.Dot(added, [2][]int{{1}, {0}}, [2][]int{}).Transpose(0, 1, 3, 2)
		return kept.Reshape(1, 1, length, 1).Select(cache, x)
	}
	keys, values := store(in[3], in[1]), store(in[4], in[2])
	seen := a.visible(query, key).And(key.Ge(first.Reshape(first.Shape()[0], 1, 1, 1, 1)))
	seen = seen.Or(at) // padding attends to itself: a softmax over no keys is NaN
	rows := func(cache value) value { return cache.Transpose(0, 2, 1, 3) }
	return []value{a.weigh(in[0], rows(keys), rows(values), seen), keys, values}
}

// weigh computes softmax(Q·Kᵀ)·V for each head, with queries [batch, n, heads, size] and keys and
// values [batch, length, key heads, size]. A head of keys and values belongs to a group of heads of
// queries. seen [batch or 1, 1, n, 1, length] has the keys to which a query attends.
func (a Attending) weigh(q, k, v, seen value) value {
	shape, keyHeads := q.Shape(), k.Shape()[2]
	q = q.Reshape(shape[0], shape[1], keyHeads, shape[2]/keyHeads, shape[3])
	// [batch, key heads, queries, group, keys]
	scores := q.Dot(k, [2][]int{{4}, {3}}, [2][]int{{0, 2}, {0, 2}}).Scale(a.Scale)
	scores = seen.Select(capped(scores, a.Cap), q.Builder().Const(math.Inf(-1)))
	mixed := softmax(scores).Dot(v, [2][]int{{4}, {1}}, [2][]int{{0, 1}, {0, 2}})
	return mixed.Transpose(0, 2, 1, 3, 4).Reshape(shape...)
}

// visible reports for positions which keys a query attends to: those up to it, in its window.
func (a Attending) visible(query, key value) value {
	seen := key.Le(query)
	if a.Window > 0 {
		seen = seen.And(query.Sub(key).Lt(query.Builder().ConstInt(int32(a.Window))))
	}
	return seen
}

// place returns the indices of queries (axis 2) or keys (axis 4), [1, 1, queries, 1, keys].
func place(b *program.Builder, queries, keys, axis int) value {
	return b.Iota(program.Type{DType: program.Int, Shape: []int{1, 1, queries, 1, keys}}, axis)
}

// ofQueries and ofKeys return what belongs to tokens, [batch, tokens], along the axis of queries or
// of keys.
func ofQueries(x value) value { return x.Reshape(x.Shape()[0], 1, x.Shape()[1], 1, 1) }
func ofKeys(x value) value    { return x.Reshape(x.Shape()[0], 1, 1, 1, x.Shape()[1]) }

func softmax(x value) value {
	e := x.Sub(x.StopGradient().MaxRow()).Exp()
	return e.Div(e.SumRow())
}

// crossEntropy returns −log softmax(logits)[target] for each row of x, [N], with targets [N].
func crossEntropy(x, w, targets value, limit float64) value {
	return call(CrossEntropy, limit, "x w targets", "y", func(in []value) []value {
		return []value{logProbability(capped(linear(in[0], in[1]), limit), in[2]).Neg()}
	}, x, w, targets)[0]
}

// draw samples a target for each row of x, int[N], from softmax(logits), by the Gumbel-max trick:
// the largest sum of logit and Gumbel noise (Gumbel, 1954). The noise has 23 bits: columns with
// probabilities below about 2⁻²³ are drawn too rarely. Nothing is differentiated through it.
func draw(x, w, key value, limit float64) value {
	return call(Draw, limit, "x w key", "targets", func(in []value) []value {
		logits := capped(linear(in[0], in[1]), limit)
		shape := logits.Shape()
		return []value{Drawn(logits, logits.Builder().RandomBits(in[2], shape...)).Reshape(shape[0])}
	}, x, w, key)[0]
}

// Drawn samples a column from each row of logits, int[N, 1], given random bits.
func Drawn(logits, bits value) value {
	u := bits.Shr(bits.Builder().ConstUint(9)).Convert(program.Float).Shift(0.5).Scale(1.0 / (1 << 23))
	return logits.Sub(u.Log().Neg().Log()).ArgMaxRow()
}

// logProbability returns log softmax(logits)[target] for each row, [N].
func logProbability(logits, targets value) value {
	b, shape := logits.Builder(), logits.Shape()
	column := b.Iota(program.Type{DType: program.Int, Shape: shape}, 1)
	chosen := column.Eq(targets.Reshape(shape[0], 1))
	return chosen.Select(logSoftmax(logits), b.Const(0)).ReduceSum(1)
}

func logSoftmax(x value) value {
	highest := x.StopGradient().MaxRow()
	return x.Sub(x.Sub(highest).Exp().SumRow().Log().Add(highest))
}

// capped returns c·tanh(x/c), or x if c is 0.
func capped(x value, c float64) value {
	if c == 0 {
		return x
	}
	return x.Scale(1 / c).Tanh().Scale(c)
}
