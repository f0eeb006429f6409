package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine/autodiff"
)

// Attention works on tensors in which features come before positions, [features, tokens]: the adjoint of a weight, and
// those of keys and values, are then products without transpositions. Queries and the output are needed both ways.

// attention returns the values that each position mixes from those before it and itself, [tokens, width], for x [tokens,
// width] and the fused weight w [3·width, width] of queries, keys and values.
func attention(x, w *graph.Node, r *rope) *graph.Node {
	parts := r.splitWeight(w)
	query1, query2 := rotate(r.project(parts[0], x), r.project(parts[1], x), r.cosScaled, r.sinScaled)
	key1, key2 := rotate(r.project(parts[2], x), r.project(parts[3], x), r.cos, r.sin)

	queries := graph.Concatenate([]*graph.Node{query1, query2}, 1) // [heads, size, tokens]
	queriesByPosition := r.splitTokens(transposed(r.flat(queries)))
	keys := r.splitFeatures(graph.Concatenate([]*graph.Node{key1, key2}, 1))
	values := r.splitFeatures(timesTransposed(parts[4], x))

	scores := graph.Add(times(queriesByPosition, keys), r.mask) // [batch, heads, queries, keys]
	weights := softmax(scores)
	mixed := timesTransposed(weights, values) // [batch, heads, positions, size]
	value := r.joinTokens(mixed)

	return autodiff.Custom(value, []*graph.Node{x, w}, func(dy *graph.Node) []*graph.Node {
		dMixed := r.splitTokens(dy)
		dValues := times(r.splitFeatures(transposed(dy)), weights)
		// The adjoint of the scores is weights·(dWeights − Σ weights·dWeights); the sum over keys equals one over features.
		sum := graph.ReduceAndKeep(graph.Mul(dMixed, mixed), graph.ReduceSum, -1)
		dScores := graph.Mul(graph.Sub(times(dMixed, values), sum), weights)
		dQueries := r.joinFeatures(timesTransposed(keys, dScores))
		dKeys := r.joinFeatures(times(r.splitFeatures(queries), dScores))
		dQuery1, dQuery2 := r.rotateBack(dQueries, r.cosScaled, r.sinScaled)
		dKey1, dKey2 := r.rotateBack(dKeys, r.cos, r.sin)
		dProjections := graph.Concatenate([]*graph.Node{r.flat(dQuery1), r.flat(dQuery2), r.flat(dKey1), r.flat(dKey2),
			r.flat(r.joinFeatures(dValues))}, 0) // [3·width, tokens]
		dx := transposed(times(transposed(graph.Concatenate(parts[:], 0)), dProjections))
		return []*graph.Node{dx, r.joinWeight(times(dProjections, x))}
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

// splitWeight cuts the fused weight into the rows of the queries' first and second coordinates, those of the keys, and
// those of the values.
func (r *rope) splitWeight(w *graph.Node) [5]*graph.Node {
	width := r.heads * r.size
	rows := func(i int) *graph.Node { return graph.Slice(w, graph.AxisRange(i*width, (i+1)*width)) }
	coordinate := func(rows *graph.Node, i int) *graph.Node {
		pairs := graph.Reshape(rows, width/2, 2, width)
		return graph.Reshape(graph.SliceAxis(pairs, 1, graph.AxisElem(i)), width/2, width)
	}
	queries, keys := rows(0), rows(1)
	return [5]*graph.Node{coordinate(queries, 0), coordinate(queries, 1), coordinate(keys, 0), coordinate(keys, 1), rows(2)}
}

// joinWeight is the inverse of splitWeight on the concatenated parts.
func (r *rope) joinWeight(parts *graph.Node) *graph.Node {
	width := r.heads * r.size
	// [queries or keys, coordinate, pairs, width] → [queries or keys, pairs, coordinate, width]
	rotated := graph.Reshape(graph.Slice(parts, graph.AxisRange(0, 2*width)), 2, 2, width/2, width)
	rotated = graph.Reshape(graph.TransposeAllAxes(rotated, 0, 2, 1, 3), 2*width, width)
	return graph.Concatenate([]*graph.Node{rotated, graph.Slice(parts, graph.AxisRange(2*width))}, 0)
}

// project returns w·xᵀ as [heads, features of a head in w, tokens].
func (r *rope) project(w, x *graph.Node) *graph.Node {
	return graph.Reshape(timesTransposed(w, x), r.heads, w.Shape().Dim(0)/r.heads, r.batch*r.context)
}

// flat joins the first two axes of three: [features, tokens].
func (r *rope) flat(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, r.batch*r.context) }

// splitTokens turns [tokens, width] into [batch, heads, context, size].
func (r *rope) splitTokens(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, r.batch, r.context, r.heads, r.size), 0, 2, 1, 3)
}

// joinTokens is the inverse of splitTokens.
func (r *rope) joinTokens(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 0, 2, 1, 3), r.batch*r.context, r.heads*r.size)
}

// splitFeatures turns [heads, size, tokens], or [width, tokens], into [batch, heads, size, context].
func (r *rope) splitFeatures(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, r.heads, r.size, r.batch, r.context), 2, 0, 1, 3)
}

// joinFeatures turns [batch, heads, size, context] into [heads, size, tokens].
func (r *rope) joinFeatures(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 1, 2, 0, 3), r.heads, r.size, r.batch*r.context)
}

// rotateBack splits x [heads, size, tokens] into first and second coordinates and rotates them back.
func (r *rope) rotateBack(x, cos, sin *graph.Node) (*graph.Node, *graph.Node) {
	first := graph.SliceAxis(x, 1, graph.AxisRange(0, r.size/2))
	second := graph.SliceAxis(x, 1, graph.AxisRange(r.size/2))
	return rotateBack(first, second, cos, sin)
}
