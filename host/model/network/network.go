// Package network writes language models as programs: what a model computes, from the table of
// features in package architecture, and nothing about how a device computes it. The gradient
// follows by package autodiff, and package reference evaluates both in binary64.
package network

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

type value = program.Value

type network struct {
	architecture.Settings // with the context of the batch
	*program.Builder
	batch      int
	quantizers Quantizers
	params     map[string]value    // and the other operands of quantizers, and caches
	shared     map[string]value    // inputs of attention in all blocks, by their names
	angles     map[string][2]value // tables of cosines and sines by RopeKey, also of a teacher
	more       *results            // of quantizers and caches
	record     []string            // sites whose activations are results, too
	cache      int                 // tokens that caches hold
}

// hidden computes the model but its head, whose input and weight it returns: an embedding, blocks,
// and a norm. tokens is [N], with N = batch·context.
func (n *network) hidden(tokens value) (x, head value) {
	x = tokens.Lookup(n.weight("embedding")).Scale(n.InputScale())
	for layer := range n.Layers {
		n.setAngles(layer)
		x = n.asCall(Block, architecture.LayerPrefix(layer), nil, []string{"x"}, []value{x},
			func(n *network, in []value) value { return n.block(layer, in[0]) })
	}
	x = n.scaledNorm(x, "norm", n.LogitScale())
	name := "head"
	if n.Tied() {
		name = "embedding"
	}
	return n.quantize("head.input", x), n.weight(name)
}

// results are those of a program, or of a part of it, besides its own.
type results struct {
	names  []string
	values []value
}

func (r *results) add(name string, v value) {
	r.names, r.values = append(r.names, name), append(r.values, v)
}

// asCall writes body as a call. Its operands are args (first in names), then the parameters and
// quantizer operands whose names begin with prefix (only those of sites, unless it is nil), then
// the shared inputs. What body adds by [network.result], such as caches, becomes a
// further result of the call.
func (n *network) asCall(name, prefix string, sites, names []string, args []value,
	body func(n *network, in []value) value) value {
	names, own := names[:len(args)], len(args)
	for _, param := range slices.Sorted(maps.Keys(n.params)) {
		site, in := strings.CutPrefix(ownerOf(param), prefix)
		if in && (sites == nil || slices.Contains(sites, site)) {
			args, names = append(args, n.params[param]), append(names, param)
		}
	}
	for _, input := range slices.Sorted(maps.Keys(n.shared)) {
		args, names = append(args, n.shared[input]), append(names, input)
	}
	var inner network
	values := callNamed(name, nil, names, func(in []value) ([]string, []value) {
		inner = *n
		inner.Builder, inner.params, inner.more = in[0].Builder(), map[string]value{}, &results{}
		inner.shared = map[string]value{}
		for i, name := range names[own:] {
			i += own
			if _, shared := n.shared[name]; shared {
				inner.shared[name] = in[i]
			} else {
				inner.params[name] = in[i]
			}
		}
		y := body(&inner, in[:own])
		return append([]string{"y"}, inner.more.names...), append([]value{y}, inner.more.values...)
	}, args...)
	for i, name := range inner.more.names {
		n.result(name, values[1+i])
	}
	return values[0]
}

// result adds a result of the program, which quantizers after it may read ([Quantizers.From]).
func (n *network) result(name string, v value) {
	n.more.add(name, v)
	for input, from := range n.quantizers.From {
		if from == name {
			n.params[input] = v
		}
	}
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
		"attn.queries", "attn.keys", "attn.values", keyCache, valueCache}
	q := n.quantized(p+"attn.qkv.input", x) // outside: a backward pass reads it
	mixed := n.asCall(SelfAttention, p, sites, []string{"x", "before", "integers", "scale"},
		q.operands(), func(n *network, in []value) value { return n.mix(p, operandOf(in)) })
	return n.linear(p, "attn.out.input", mixed, "attn.out")[0]
}

// mix computes the weighted sums of values, [N, heads·size].
func (n *network) mix(p string, x operand) value {
	projected := n.product(x, p+"attn.qkv.input", p+"attn.qkv")
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
	return n.attend(p, q, k, v).Reshape(n.batch*n.Context, n.QueryWidth())
}

// setAngles sets the tables of the rotary position embedding of a layer, which most layers share:
// [positions, size/2] or, if the rows of a batch have positions of their own, [batch·context,
// size/2].
func (n *network) setAngles(layer int) {
	s := n.LayerRope(layer)
	angles, known := n.angles[s.RopeKey()]
	if !known {
		positions, length := n.positions()
		for i, f := range []func(float64) float64{math.Cos, math.Sin} {
			wide := func(v float32) float64 { return float64(v) }
			angles[i] = n.Table(lists.Map(s.ByPosition(length, f), wide), length, n.HeadSize/2)
			if positions.Valid() {
				angles[i] = positions.Lookup(angles[i])
			}
		}
		n.angles[s.RopeKey()] = angles
	}
	n.shared[cosines], n.shared[sines] = angles[0], angles[1]
}

// heads returns queries, keys and values, [batch, context, heads, size]. Queries and keys may be
// normalized, and are rotated by their positions.
func (n *network) heads(p string, projected value) (q, k, v value) {
	cos, sin := n.shared[cosines], n.shared[sines]
	split := func(x value, rotated int, parts ...int) []value {
		rows := cos.Shape()[0] // positions of each sequence, or of all
		h := Heads{n.batch * n.Context / rows, rows, n.HeadSize, parts, rotated,
			n.RopePairs == architecture.Interleaved}
		return lists.Map(h.rope(x, cos, sin), func(part value) value {
			return part.Reshape(n.batch, n.Context, part.Shape()[2], n.HeadSize)
		})
	}
	if _, ok := n.params[p+"attn.q_norm"]; !ok {
		all := split(projected, 2, n.Heads, n.KVHeads, n.KVHeads)
		return all[0], all[1], all[2]
	}
	all := split(projected, 0, n.Heads, n.KVHeads, n.KVHeads)
	normed := func(x value, name string) value {
		heads := x.Shape()[2]
		rows := n.norm(x.Reshape(n.batch*n.Context, heads*n.HeadSize), p+name)
		return split(rows, 1, heads)[0]
	}
	return normed(all[0], "attn.q_norm"), normed(all[1], "attn.k_norm"), all[2]
}

// halves puts the first features of all pairs of a head before the second ones, which is the order
// in which queries and keys are quantized.
func (n *network) halves(x value) value {
	s := x.Shape()
	return x.Reshape(s[0], s[1], s[2], s[3]/2, 2).Transpose(0, 1, 2, 4, 3).Reshape(s...)
}

// norm is [rmsNorm] with the gain of that name, over as many features as the gain has: those of a
// row, or of each head in it. It returns x if the model has no such norm.
func (n *network) norm(x value, name string) value { return n.scaledNorm(x, name, 1) }

// scaledNorm is norm with a factor.
func (n *network) scaledNorm(x value, name string, factor float64) value {
	param, ok := n.params[name]
	if !ok || n.Err() != nil {
		return x
	}
	features := param.Shape()[0]
	if offset := n.NormOffset(); offset != 0 {
		param = param.Shift(offset)
	}
	param = param.Scale(factor)
	rows, gain := x.Reshape(int(x.Type().Size())/features, features), param.Reshape(1, features)
	return rmsNorm(rows, gain, n.NormEps).Reshape(x.Shape()...)
}
