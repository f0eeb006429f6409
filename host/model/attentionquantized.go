package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// attentionQuantized is [attend] with operands quantized as in cached decoding ([attentionCached]).
// Each step has its own gradient, so that quantizers may define any gradient.
func attentionQuantized(x, w *graph.Node, more qkvParams, r *attentionLayers, sites blockSites,
	q ActivationQuantizer) *graph.Node {
	query, key, value := r.operands(x, w, more)
	query, key, value = r.quantize(query, sites[siteQuery], q), r.quantize(key, sites[siteKey], q),
		r.quantize(value, sites[siteValue], q)
	mixed, back := r.core(query, key, value)
	mixed = engine.Custom(mixed, []*graph.Node{query, key, value}, func(dy *graph.Node) []*graph.Node {
		dQuery, dKey, dValue := back(dy)
		return []*graph.Node{dQuery, dKey, dValue}
	})
	return r.joinHeads(mixed)
}

// operands returns queries [batch, context, heads, size], and keys and values [batch, context, key
// heads, size]. Queries and keys are normalized and rotated, in half-split order.
func (r *attentionLayers) operands(x, w *graph.Node, more qkvParams) (query, key,
	value *graph.Node) {
	queries, keys := r.heads*r.size, r.keyHeads*r.size
	projected := more.addBias(linear(x, w), sameOrder) // [tokens, queries, keys and values]
	query = graph.SliceAxis(projected, 1, graph.AxisRange(0, queries))
	key = graph.SliceAxis(projected, 1, graph.AxisRange(queries, queries+keys))
	value = r.splitHeads(graph.SliceAxis(projected, 1, graph.AxisRange(queries+keys)))
	if more.query != nil {
		query, key = normalizeHeads(query, more.query, more.epsilon),
			normalizeHeads(key, more.key, more.epsilon)
	}
	return r.rotateToHalfSplit(r.splitHeads(query)), r.rotateToHalfSplit(r.splitHeads(key)), value
}

func (r *attentionLayers) quantize(x *graph.Node, site ActivationSite,
	q ActivationQuantizer) *graph.Node {
	if q == nil || site.Name == "" {
		return x
	}
	return r.splitHeads(q(site, r.joinHeads(x)))
}

// rotateToHalfSplit rotates the pairs of features of x [batch, n, heads, size], and returns them in
// half-split order.
func (r *attentionLayers) rotateToHalfSplit(x *graph.Node) *graph.Node {
	if r.pairing == architecture.Interleaved {
		dims := x.Shape().Dimensions
		pairs := graph.Reshape(x, dims[0], dims[1], dims[2], r.size/2, 2)
		x = graph.Reshape(graph.TransposeAllAxes(pairs, 0, 1, 2, 4, 3), dims...)
	}
	return engine.Custom(r.rotatePairs(x, 1), []*graph.Node{x},
		func(dy *graph.Node) []*graph.Node {
			return []*graph.Node{r.rotatePairs(dy, -1)}
		})
}

// normalizeHeads normalizes x [tokens, heads·size] as [qkvParams] describes.
func normalizeHeads(x, gain *graph.Node, epsilon float64) *graph.Node {
	rows := graph.Reshape(x, -1, gain.Shape().Dim(0))
	return graph.Reshape(rmsNorm(rows, gain, epsilon), x.Shape().Dimensions...)
}
