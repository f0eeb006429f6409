package graphs

import (
	"math"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/model/network"
)

func attend(c lower.Call) ([]*graph.Node, lower.Back) {
	var segments *graph.Node
	if len(c.Args) > 3 {
		segments = c.Args[3]
	}
	return by(chooseCore(c.Setting.(network.Attending), c.Args[0], c.Args[1], segments), c)
}

// attendToParts attends to the context of a part of a row and to the tokens before in the part.
func attendToParts(c lower.Call) ([]*graph.Node, lower.Back) {
	a, positions, parts := c.Setting.(network.Attending), c.Args[3], c.Args[4]
	batch, length := parts.Shape().Dim(0), parts.Shape().Dim(1)
	along := func(x *graph.Node, axis int) *graph.Node {
		return graph.BroadcastToDims(graph.InsertAxes(x, axis), batch, length, length)
	}
	ofContext := graph.Equal(parts, graph.Scalar(parts.Graph(), parts.DType(), 0))
	seen := graph.Or(sameDocument(parts), along(ofContext, 1))
	if a.Window > 0 {
		seen = graph.And(seen, inWindow(along(positions, 2), along(positions, 1), a.Window))
	}
	return by(maskedCore(a, func(x *graph.Node) *graph.Node { return maskScores(x, seen, 0) }), c)
}

// by computes attention by a core.
func by(core attentionCore, c lower.Call) ([]*graph.Node, lower.Back) {
	mixed, back := core(c.Args[0], c.Args[1], c.Args[2])
	return []*graph.Node{mixed}, func(d []lower.Adjoint, _ *graph.Node) []*graph.Node {
		dQuery, dKey, dValue := back(d[0].Node())
		return append([]*graph.Node{dQuery, dKey, dValue}, make([]*graph.Node, len(c.Args)-3)...)
	}
}

// attendToCaches adds keys and values to caches, and attends to these. There is no gradient.
func attendToCaches(c lower.Call) ([]*graph.Node, lower.Back) {
	a, query := c.Setting.(network.Attending), c.Args[0]
	start, first := c.Args[5], c.Args[6]
	append := func(cache, x *graph.Node) *graph.Node { // they are rounded like operands of products
		zero := graph.Scalar(cache.Graph(), shapes.Int32, 0)
		return graph.DynamicUpdateSlice(cache, engine.Rounded(graph.TransposeAllAxes(x, 0, 2, 1, 3)),
			[]*graph.Node{zero, zero, start, zero})
	}
	keys, values := append(c.Args[3], c.Args[1]), append(c.Args[4], c.Args[2])
	batch, n, heads, size := query.Shape().Dim(0), query.Shape().Dim(1), query.Shape().Dim(2),
		query.Shape().Dim(3)
	keyHeads, length := keys.Shape().Dim(1), keys.Shape().Dim(2)
	// Positions of queries and keys, [batch, 1, n, 1, length].
	dims := []int{batch, 1, n, 1, length}
	shape := shapes.Make(shapes.Int32, dims...)
	at := graph.Add(graph.Iota(query.Graph(), shape, 2), graph.BroadcastToDims(start, dims...))
	key := graph.Iota(query.Graph(), shape, 4)
	begin := graph.BroadcastToDims(graph.Reshape(first, batch, 1, 1, 1, 1), dims...)
	seen := graph.And(graph.LessOrEqual(key, at), graph.GreaterOrEqual(key, begin))
	if a.Window > 0 {
		seen = graph.And(seen, inWindow(at, key, a.Window))
	}
	// Padding attends to itself, because a softmax over no keys is NaN.
	seen = graph.Or(graph.Equal(key, at), seen)
	grouped := graph.Reshape(query, batch, n, keyHeads, heads/keyHeads, size)
	// [batch, key heads, n, group, length]
	products := engine.DotGeneral(grouped, []int{4}, []int{0, 2}, keys, []int{3}, []int{0, 1})
	scores := scoresOf(a, products)
	all := scores.Shape().Dimensions
	hidden := graph.BroadcastToDims(graph.Scalar(query.Graph(), shapes.Float32, math.Inf(-1)), all...)
	weights := softmax(graph.Where(graph.BroadcastToDims(seen, all...), scores, hidden))
	// [batch, key heads, n, group, size]
	mixed := engine.DotGeneral(weights, []int{4}, []int{0, 1}, values, []int{2}, []int{0, 1})
	mixed = graph.Reshape(graph.TransposeAllAxes(mixed, 0, 2, 1, 3, 4), batch, n, heads, size)
	return []*graph.Node{mixed, keys, values}, nil
}

func softmax(x *graph.Node) *graph.Node {
	e := graph.Exp(graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMax, -1)))
	return graph.Div(e, graph.ReduceAndKeep(e, graph.ReduceSum, -1))
}

// An attentionCore returns the weighted sums of values, [batch, context, heads, size], for queries
// [batch, context, heads, size] and keys and values [batch, context, key heads, size], all float32.
type attentionCore func(query, key, value *graph.Node) (mixed *graph.Node, back attentionBack)

// An attentionBack returns the adjoints of the three inputs, given the adjoint of the result.
type attentionBack func(dMixed *graph.Node) (dQuery, dKey, dValue *graph.Node)

// scoresOf makes scores of products of queries and keys.
func scoresOf(a network.Attending, products *graph.Node) *graph.Node {
	return softcap(graph.MulScalar(products, a.Scale), a.Cap)
}

// plainCore returns a core that saves the weights of all pairs of positions for the backward pass.
// segments holds the document numbers in each row, [batch, context]; nil means one document.
func plainCore(a network.Attending, segments *graph.Node) attentionCore {
	return maskedCore(a, func(scores *graph.Node) *graph.Node {
		if segments == nil {
			return maskScores(scores, nil, a.Window)
		}
		return maskScores(scores, sameDocument(segments), a.Window)
	})
}

// maskedCore is like plainCore, but masks scores [batch, key heads, queries, group, keys] by hide.
func maskedCore(a network.Attending, hide func(scores *graph.Node) *graph.Node) attentionCore {
	return func(query, key, value *graph.Node) (*graph.Node, attentionBack) {
		dims := query.Shape().Dimensions
		batch, context, keyHeads, size := dims[0], dims[1], key.Shape().Dim(2), dims[3]
		group := dims[2] / keyHeads
		grouped := func(x *graph.Node) *graph.Node {
			return graph.Reshape(x, batch, context, keyHeads, group, size)
		}
		q := grouped(query)
		// [batch, key heads, queries, group, keys]
		products := engine.DotGeneral(q, []int{4}, []int{0, 2}, key, []int{3}, []int{0, 2})
		y := scoresOf(a, products)
		weights := softmax(hide(y))
		// [batch, key heads, queries, group, size]
		outputs := engine.DotGeneral(weights, []int{4}, []int{0, 1}, value, []int{1}, []int{0, 2})
		mixed := graph.TransposeAllAxes(outputs, 0, 2, 1, 3, 4)
		return graph.Reshape(mixed, dims...), func(dMixed *graph.Node) (dq, dk, dv *graph.Node) {
			d := grouped(dMixed)
			dValue := engine.DotGeneral(weights, []int{2, 3}, []int{0, 1}, d, []int{1, 3}, []int{0, 2})
			// The adjoint of the scores is weights·(dWeights − Σ weights·dWeights); the sum over
			// keys equals a sum over features, Σ d·mixed.
			sum := graph.ReduceAndKeep(graph.Mul(d, mixed), graph.ReduceSum, -1)
			sum = graph.TransposeAllAxes(sum, 0, 2, 1, 3, 4)
			dWeights := engine.DotGeneral(d, []int{4}, []int{0, 2}, value, []int{3}, []int{0, 2})
			dScores := graph.Mul(graph.Sub(dWeights, sum), weights)
			dProducts := graph.MulScalar(softcapAdjoint(y, dScores, a.Cap), a.Scale)
			dQuery := graph.TransposeAllAxes(engine.DotGeneral(dProducts, []int{4}, []int{0, 1}, key,
				[]int{1}, []int{0, 2}), 0, 2, 1, 3, 4)
			dKey := engine.DotGeneral(dProducts, []int{2, 3}, []int{0, 1}, q, []int{1, 3}, []int{0, 2})
			return graph.Reshape(dQuery, dims...), graph.TransposeAllAxes(dKey, 0, 2, 1, 3),
				graph.TransposeAllAxes(dValue, 0, 2, 1, 3)
		}
	}
}

// maskScores masks the scores [batch, key heads, queries, group, keys] of keys after the query and
// before its window, unless that is 0, and of keys for which visible [batch, queries, keys] is
// false, unless that is nil.
func maskScores(scores, visible *graph.Node, window int) *graph.Node {
	g, dims := scores.Graph(), scores.Shape().Dimensions
	square := shapes.Make(shapes.Int32, 1, 1, dims[2], 1, dims[4])
	query, key := graph.Iota(g, square, 2), graph.Iota(g, square, 4)
	seen := graph.LessOrEqual(key, query)
	if window > 0 {
		seen = graph.And(seen, inWindow(query, key, window))
	}
	seen = graph.BroadcastToDims(seen, dims...)
	if visible != nil {
		visible = graph.InsertAxes(graph.InsertAxes(visible, 2), 1)
		seen = graph.And(seen, graph.BroadcastToDims(visible, dims...))
	}
	hidden := graph.Scalar(g, scores.DType(), math.Inf(-1))
	return graph.Where(seen, scores, graph.BroadcastToDims(hidden, dims...))
}

// inWindow reports, for each pair of positions, whether the key is at most window−1 before the
// query.
func inWindow(query, key *graph.Node, window int) *graph.Node {
	first := graph.AddScalar(query, 1-window)
	return graph.GreaterOrEqual(key, first)
}

// sameDocument reports for each query and key whether they are in the same document, [batch,
// queries, keys].
func sameDocument(segments *graph.Node) *graph.Node {
	return graph.Equal(graph.InsertAxes(segments, 2), graph.InsertAxes(segments, 1))
}

func toBFloat16(x *graph.Node) *graph.Node { return graph.ConvertDType(x, shapes.BFloat16) }

func toFloat32(x *graph.Node) *graph.Node { return graph.ConvertDType(x, shapes.Float32) }
