package model

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/engine/autodiff"
)

// An attentionCore returns what each position mixes from the values of those before it and its own, [batch, context,
// heads, size], for queries [batch, context, heads, size] and keys and values [batch, context, key heads, size], all
// float32, and the adjoints of the three from that of the result.
type attentionCore func(query, key, value *graph.Node) (mixed *graph.Node, back func(dMixed *graph.Node) (dQuery, dKey, dValue *graph.Node))

// plainCore keeps the weights of every pair of positions for the backward pass. segments are those of the documents in
// each row, [batch, context], nil for one.
func plainCore(segments *graph.Node) attentionCore {
	return func(query, key, value *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
		return plainAttention(query, key, value, segments)
	}
}

func plainAttention(query, key, value, segments *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
	dims := query.Shape().Dimensions
	batch, context, keyHeads, size := dims[0], dims[1], key.Shape().Dim(2), dims[3]
	group := dims[2] / keyHeads
	grouped := func(x *graph.Node) *graph.Node { return graph.Reshape(x, batch, context, keyHeads, group, size) }
	scale := 1 / math.Sqrt(float64(size))

	q := grouped(query)
	products := engine.DotGeneral(q, []int{4}, []int{0, 2}, key, []int{3}, []int{0, 2}) // [batch, key heads, queries, group, keys]
	weights := softmax(masked(graph.MulScalar(products, scale), segments))
	outputs := engine.DotGeneral(weights, []int{4}, []int{0, 1}, value, []int{1}, []int{0, 2}) // [batch, key heads, queries, group, size]
	mixed := graph.TransposeAllAxes(outputs, 0, 2, 1, 3, 4)
	return graph.Reshape(mixed, dims...), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
		d := grouped(dMixed)
		dValue := engine.DotGeneral(weights, []int{2, 3}, []int{0, 1}, d, []int{1, 3}, []int{0, 2})
		// See [attention].
		sum := graph.TransposeAllAxes(graph.ReduceAndKeep(graph.Mul(d, mixed), graph.ReduceSum, -1), 0, 2, 1, 3, 4)
		dWeights := engine.DotGeneral(d, []int{4}, []int{0, 2}, value, []int{3}, []int{0, 2})
		dProducts := graph.MulScalar(graph.Mul(graph.Sub(dWeights, sum), weights), scale)
		dQuery := graph.TransposeAllAxes(engine.DotGeneral(dProducts, []int{4}, []int{0, 1}, key, []int{1}, []int{0, 2}), 0, 2, 1, 3, 4)
		dKey := engine.DotGeneral(dProducts, []int{2, 3}, []int{0, 1}, q, []int{1, 3}, []int{0, 2})
		return graph.Reshape(dQuery, dims...), graph.TransposeAllAxes(dKey, 0, 2, 1, 3), graph.TransposeAllAxes(dValue, 0, 2, 1, 3)
	}
}

// masked hides later keys, and those of other documents, from a query in scores [batch, key heads, queries, group, keys].
func masked(scores, segments *graph.Node) *graph.Node {
	g, dims := scores.Graph(), scores.Shape().Dimensions
	square := shapes.Make(dtypes.Int32, 1, 1, dims[2], 1, dims[4])
	seen := graph.LessOrEqual(graph.Iota(g, square, 4), graph.Iota(g, square, 2))
	seen = graph.BroadcastToDims(seen, dims...)
	if segments != nil {
		same := graph.InsertAxes(graph.InsertAxes(sameDocument(segments), 2), 1)
		seen = graph.LogicalAnd(seen, graph.BroadcastToDims(same, dims...))
	}
	hidden := graph.Scalar(g, scores.DType(), math.Inf(-1))
	return graph.Where(seen, scores, graph.BroadcastToDims(hidden, dims...))
}

// fusedCore is one operation of the device forward and one backward, in bfloat16 with sums in float32, which keeps one
// number for each query and head (Dao et al., 2022). It panics with [compute.ErrNotImplemented] where the device has
// none for such operands.
func fusedCore(query, key, value *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
	config := &compute.ScaledDotProductAttentionConfig{Scale: 1 / math.Sqrt(float64(query.Shape().Dim(3))), Causal: true}
	q, k, v := rounded(query), rounded(key), rounded(value)
	mixed, _ := graph.BackendFusedScaledDotProductAttention(q, k, v, compute.AttentionAxesLayoutBSHD, config)
	return exact(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
		d := autodiff.VJP(mixed, rounded(dMixed), q, k, v)
		return exact(d[0]), exact(d[1]), exact(d[2])
	}
}

func rounded(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.BFloat16) }

func exact(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }
