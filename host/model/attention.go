package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/compute/lower"
)

// In attention, features come before positions here, [features, tokens]: the adjoints of the weight, the keys and the
// values are then products without transpositions. Queries and the output are needed in both orders. On GPUs in bfloat16
// positions come first: see [attentionByPosition].
//
// Each head of keys and values serves a group of heads of queries, often a group of one. The scores of a group are one
// product, in which its queries follow each other.

// attend returns the values that each position mixes from those before it and itself, [tokens, width], for x [tokens,
// width] and the fused weight w of queries, keys and values. norms, if any, normalizes queries and keys, and q quantizes what has a
// site.
func attend(x, w *graph.Node, norms *queryKeyNorm, r *rope, sites blockSites, q ActivationQuantizer) *graph.Node {
	if r.cached != nil {
		return attentionCached(x, w, norms, r, sites, q)
	}
	if !r.again {
		return attendOnce(x, w, norms, r, sites, q)
	}
	rounded := false // the note of attendOnce, which a checkpoint does not pass on
	mixed := autodiff.Checkpoint(func(in []*graph.Node) *graph.Node {
		y := attendOnce(in[0], in[1], norms.with(in[2:]), r, sites, q)
		rounded = lower.HasRoundedAdjoint(y)
		return y
	}, append([]*graph.Node{x, w}, norms.gains()...)...)
	if rounded {
		lower.NoteRoundedAdjoint(mixed)
	}
	return mixed
}

// attendOnce is [attend] without caches, whose intermediate values the backward pass may keep.
func attendOnce(x, w *graph.Node, norms *queryKeyNorm, r *rope, sites blockSites, q ActivationQuantizer) *graph.Node {
	if q != nil && sites.quantizesAttention() {
		return attentionQuantized(x, w, norms, r, sites, q)
	}
	if r.core != nil {
		return attentionByPosition(x, w, norms, r, r.core)
	}
	return attentionByFeature(x, w, norms, r)
}

// attentionByFeature is [attend] on the CPU and in float32.
func attentionByFeature(x, w *graph.Node, norms *queryKeyNorm, r *rope) *graph.Node {
	parts := r.splitWeight(w)
	query := points{r.project(parts[0], x, r.heads), r.project(parts[1], x, r.heads)}
	key := points{r.project(parts[2], x, r.keyHeads), r.project(parts[3], x, r.keyHeads)}
	query, key, normBack := normalizeBoth(norms, query, key, r.normalize)
	query, key = r.turnScaled.apply(query), r.turn.apply(key)

	queries := query.join() // [heads, size, tokens]
	queriesByPosition := r.group(r.splitTokens(transpose(r.flatten(queries))))
	keys := r.splitFeatures(key.join())
	values := r.splitFeatures(matMulTransposed(parts[4], x))

	scores := graph.Add(r.ungroup(matMul(queriesByPosition, keys)), r.mask) // [batch, heads, queries, keys]
	weights := softmax(scores)
	mixed := r.ungroup(matMulTransposed(r.group(weights), values)) // [batch, heads, positions, size]
	value := r.joinTokens(mixed)

	return autodiff.Custom(value, append([]*graph.Node{x, w}, norms.gains()...), func(dy *graph.Node) []*graph.Node {
		dMixed := r.splitTokens(dy)
		dValues := r.sumGroups(matMul(r.splitFeatures(transpose(dy)), weights))
		// The adjoint of the scores is weights·(dWeights − Σ weights·dWeights); the sum over keys equals one over features.
		sum := graph.ReduceAndKeep(graph.Mul(dMixed, mixed), graph.ReduceSum, -1)
		dScores := graph.Mul(graph.Sub(r.ungroup(matMul(r.group(dMixed), values)), sum), weights)
		dQueries := r.joinQueries(matMulTransposed(keys, r.group(dScores)))
		dKeys := r.joinFeatures(r.sumGroups(matMul(r.splitFeatures(queries), dScores)))
		dQuery, dKey := r.turnScaled.back(splitPoints(dQueries)), r.turn.back(splitPoints(dKeys))
		dQuery, dKey, dGains := normBack(dQuery, dKey)
		dProjections := graph.Concatenate([]*graph.Node{r.flatten(dQuery.first), r.flatten(dQuery.second), r.flatten(dKey.first),
			r.flatten(dKey.second), r.flatten(r.joinFeatures(dValues))}, 0) // [rows of w, tokens]
		if quantizesBackward(w) {
			dx, dw := linearGradients(transpose(r.joinWeight(dProjections)), x, w)
			return append([]*graph.Node{dx, dw}, dGains...)
		}
		dx := transpose(transposedMatMul(graph.Concatenate(parts[:], 0), dProjections))
		return append([]*graph.Node{dx, r.joinWeight(matMul(dProjections, x))}, dGains...)
	})
}

// softmax normalizes over the last axis.
func softmax(x *graph.Node) *graph.Node {
	y, _ := graph.InternalFusedOpCaller(
		func() *graph.Node { return graph.BackendFusedSoftmax(x, x.Rank()-1) },
		func() *graph.Node {
			e := graph.Exp(graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMax, -1)))
			return graph.Div(e, graph.ReduceAndKeep(e, graph.ReduceSum, -1))
		},
		false)
	return y
}

// project returns w·xᵀ as [heads, features of a head in w, tokens].
func (r *rope) project(w, x *graph.Node, heads int) *graph.Node {
	return graph.Reshape(matMulTransposed(w, x), heads, w.Shape().Dim(0)/heads, r.batch*r.context)
}

// flatten joins the first two axes of three: [features, tokens].
func (r *rope) flatten(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, r.batch*r.context) }

// splitTokens turns [tokens, width] into [batch, heads, context, size].
func (r *rope) splitTokens(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, r.batch, r.context, r.heads, r.size), 0, 2, 1, 3)
}

// joinTokens is the inverse of splitTokens.
func (r *rope) joinTokens(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 0, 2, 1, 3), r.batch*r.context, r.heads*r.size)
}

// splitFeatures turns [heads, size, tokens], or [heads·size, tokens], into [batch, heads, size, context].
func (r *rope) splitFeatures(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, -1, r.size, r.batch, r.context), 2, 0, 1, 3)
}

// joinFeatures turns [batch, heads, size, context] into [heads, size, tokens].
func (r *rope) joinFeatures(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 1, 2, 0, 3), -1, r.size, r.batch*r.context)
}

// groups is the number of heads of queries for one of keys.
func (r *rope) groups() int { return r.heads / r.keyHeads }

// group turns [batch, heads, context, n] into [batch, key heads, group·context, n].
func (r *rope) group(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	return graph.Reshape(x, r.batch, r.keyHeads, r.groups()*r.context, -1)
}

// ungroup is the inverse of group.
func (r *rope) ungroup(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	return graph.Reshape(x, r.batch, r.heads, r.context, -1)
}

// sumGroups adds up over the heads of each group: [batch, heads, …] becomes [batch, key heads, …].
func (r *rope) sumGroups(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	dims := x.Shape().Dimensions
	return graph.ReduceSum(graph.Reshape(x, r.batch, r.keyHeads, r.groups(), dims[2], dims[3]), 2)
}

// joinQueries turns [batch, key heads, size, group·context] into [heads, size, tokens].
func (r *rope) joinQueries(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return r.joinFeatures(x)
	}
	x = graph.Reshape(x, r.batch, r.keyHeads, r.size, r.groups(), r.context)
	return graph.Reshape(graph.TransposeAllAxes(x, 1, 3, 2, 0, 4), r.heads, r.size, r.batch*r.context)
}
