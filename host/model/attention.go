package model

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/architecture"
)

// attend returns the attention output [tokens, width] for x [tokens, width] and the fused weight w
// of queries, keys and values: for each position the weighted sum of the values up to it. q
// quantizes the activation sites.
func attend(x, w *graph.Node, more qkvParams, r *attentionLayers, sites blockSites,
	q ActivationQuantizer) *graph.Node {
	if r.cached != nil {
		return attentionCached(x, w, more, r, sites, q)
	}
	if !r.recompute {
		return attendOnce(x, w, more, r, sites, q)
	}
	return engine.Checkpoint(func(in []*graph.Node) *graph.Node {
		return attendOnce(in[0], in[1], more.with(in[2:]), r, sites, q)
	}, append([]*graph.Node{x, w}, more.nodes()...)...)
}

// attendOnce is [attend] without caches; the backward pass may save intermediate values.
func attendOnce(x, w *graph.Node, more qkvParams, r *attentionLayers, sites blockSites,
	q ActivationQuantizer) *graph.Node {
	if q != nil && sites[siteQuery].Name+sites[siteKey].Name+sites[siteValue].Name != "" {
		return attentionQuantized(x, w, more, r, sites, q)
	}
	return projectedAttention(x, w, more, r)
}

// projectedAttention is [attend] on tensors [batch, context, heads, size], the layout of a linear
// layer's output and of fused attention on GPUs, so that no large tensor is transposed.
func projectedAttention(x, w *graph.Node, more qkvParams, r *attentionLayers) *graph.Node {
	// The features of queries and keys are brought to half-split order.
	rows := r.toHalfSplit(w)
	if c, ok := lower.CodesOf(w); ok {
		c.Map(r.toHalfSplit).AttachTo(rows)
	}
	queries, keys := r.heads*r.size, r.keyHeads*r.size
	// [tokens, queries, keys and values]
	projected := more.addBias(matMulTransposedRounded(x, rows), r.toHalfSplit)
	inputs := append([]*graph.Node{x, w}, more.nodes()...)
	query := graph.SliceAxis(projected, 1, graph.AxisRange(0, queries))
	key := graph.SliceAxis(projected, 1, graph.AxisRange(queries, queries+keys))
	value := r.splitHeads(graph.SliceAxis(projected, 1, graph.AxisRange(queries+keys)))
	query, key, normBack := more.normalize(r, query, key)
	mixed, coreBack := r.core(r.rotatePairs(r.splitHeads(query), 1),
		r.rotatePairs(r.splitHeads(key), 1), value)

	return engine.Custom(r.joinHeads(mixed), inputs, func(dy *graph.Node) []*graph.Node {
		dQuery, dKey, dValue := coreBack(r.splitHeads(dy))
		back := func(d *graph.Node) *graph.Node { return r.joinHeads(r.rotatePairs(d, -1)) }
		dQuery, dKey, dGains := normBack(back(dQuery), back(dKey))
		dProjected := graph.Concatenate([]*graph.Node{dQuery, dKey, r.joinHeads(dValue)}, 1)
		dMore := append(more.biasAdjoint(dProjected, r.fromHalfSplit), dGains...)
		if quantizesBackward(w) { // blocks and noise depend on the order of the weight's rows
			dProjected = transpose(r.fromHalfSplit(transpose(dProjected)))
			dx, dw := linearGradients(dProjected, x, w)
			return append([]*graph.Node{dx, dw}, dMore...)
		}
		if !engine.OnCPU(x.Graph()) {
			// Without this, XLA fuses the concatenation into one of the two products.
			dProjected = engine.Rounded(dProjected)
		}
		dx, dw := matMul(dProjected, rows), r.fromHalfSplit(transposedMatMul(dProjected, x))
		return append([]*graph.Node{dx, dw}, dMore...)
	})
}

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

// splitHeads reshapes [tokens, heads·size] to [batch, context, heads, size].
func (r *attentionLayers) splitHeads(x *graph.Node) *graph.Node {
	return graph.Reshape(x, r.batch, r.context, x.Shape().Dim(1)/r.size, r.size)
}

func (r *attentionLayers) joinHeads(x *graph.Node) *graph.Node {
	return graph.Reshape(x, r.batch*r.context, x.Shape().Dim(2)*r.size)
}

// rotatePairs rotates the pairs of features of x [batch, context, heads, size], which is in
// half-split order, forward for direction 1 and back for −1. Both halves are computed at once,
// each from itself and from the other half in reverse order. If they were computed separately,
// compilers would write them to memory to join them.
func (r *attentionLayers) rotatePairs(x *graph.Node, direction float32) *graph.Node {
	dims := x.Shape().Dimensions
	halves := graph.Reshape(x, dims[0], dims[1], dims[2], 2, r.size/2)
	table := func(t *graph.Node) *graph.Node { return graph.Reshape(t, -1, dims[1], 1, 1, r.size/2) }
	signs := engine.Constant(x.Graph(), []float32{-direction, direction}, 1, 1, 1, 2, 1)
	y := graph.Mul(halves, table(r.tables.cos))
	z := graph.Mul(graph.Reverse(halves, 3), graph.Mul(table(r.tables.sin), signs))
	return graph.Reshape(graph.Add(y, z), dims...)
}

// toHalfSplit permutes the rows of queries and keys in the fused weight w, [rows, n], to half-split
// order within each head: all first features of pairs, then all second ones. w may also have only
// the rows of queries or of keys.
func (r *attentionLayers) toHalfSplit(w *graph.Node) *graph.Node {
	return r.reorder(w, r.size/2, 2)
}

func (r *attentionLayers) fromHalfSplit(w *graph.Node) *graph.Node {
	return r.reorder(w, 2, r.size/2)
}

// reorder transposes the rows of each head of queries and keys, viewed as a rows×columns matrix.
func (r *attentionLayers) reorder(w *graph.Node, rows, columns int) *graph.Node {
	if r.pairing != architecture.Interleaved { // they are in half-split order
		return w
	}
	all, n := w.Shape().Dim(0), w.Shape().Dim(1)
	rotated := min(all, (r.heads+r.keyHeads)*r.size)
	heads := graph.Slice(w, graph.AxisRange(0, rotated))
	heads = graph.Reshape(heads, rotated/r.size, rows, columns, n)
	out := graph.Reshape(graph.TransposeAllAxes(heads, 0, 2, 1, 3), rotated, n)
	if rotated == all {
		return out
	}
	return graph.Concatenate([]*graph.Node{out, graph.Slice(w, graph.AxisRange(rotated))}, 0)
}

// An attentionCore returns the weighted sums of values, [batch, context, heads, size], for queries
// [batch, context, heads, size] and keys and values [batch, context, key heads, size], all float32.
type attentionCore func(query, key, value *graph.Node) (mixed *graph.Node, back attentionBack)

// An attentionBack returns the adjoints of the three inputs, given the adjoint of the result.
type attentionBack func(dMixed *graph.Node) (dQuery, dKey, dValue *graph.Node)

// scores says how products of queries and keys become scores: they are multiplied by scale, and
// capped unless cap is 0.
type scores struct{ scale, cap float64 }

func scoresOf(s architecture.Settings) scores { return scores{s.ScoreScale(), s.ScoreCap} }

func (s scores) of(products *graph.Node) *graph.Node {
	return softcap(graph.MulScalar(products, s.scale), s.cap)
}

// plainCore returns a core that saves the weights of all pairs of positions for the backward pass.
// segments holds the document numbers in each row, [batch, context]; nil means one document. A
// query attends to window tokens, itself included, or to all before it if window is 0.
func plainCore(s scores, segments *graph.Node, window int) attentionCore {
	return maskedCore(s, func(scores *graph.Node) *graph.Node {
		if segments == nil {
			return maskScores(scores, nil, window)
		}
		return maskScores(scores, sameDocument(segments), window)
	})
}

// maskedCore is like plainCore, but masks scores [batch, key heads, queries, group, keys] by hide.
func maskedCore(s scores, hide func(scores *graph.Node) *graph.Node) attentionCore {
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
		y := s.of(products)
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
			dProducts := graph.MulScalar(softcapAdjoint(y, dScores, s.cap), s.scale)
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
	square := shapes.Make(dtypes.Int32, 1, 1, dims[2], 1, dims[4])
	query, key := graph.Iota(g, square, 2), graph.Iota(g, square, 4)
	seen := graph.LessOrEqual(key, query)
	if window > 0 {
		seen = graph.LogicalAnd(seen, inWindow(query, key, window))
	}
	seen = graph.BroadcastToDims(seen, dims...)
	if visible != nil {
		visible = graph.InsertAxes(graph.InsertAxes(visible, 2), 1)
		seen = graph.LogicalAnd(seen, graph.BroadcastToDims(visible, dims...))
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

// fusedCore returns a core that is one device operation forward and one backward, in bfloat16 with
// sums in float32, and saves one number for each query and head (Dao et al., 2022). It multiplies
// scores by scale. It panics with [compute.ErrNotImplemented] if the device has no such operation.
func fusedCore(scale float64) attentionCore {
	return func(query, key, value *graph.Node) (*graph.Node, attentionBack) {
		config := &compute.ScaledDotProductAttentionConfig{Scale: scale, Causal: true}
		q, k, v := toBFloat16(query), toBFloat16(key), toBFloat16(value)
		const layout = compute.AttentionAxesLayoutBSHD
		mixed, _ := graph.BackendFusedScaledDotProductAttention(q, k, v, layout, config)
		return toFloat32(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
			d := engine.VJP(mixed, toBFloat16(dMixed), q, k, v)
			return toFloat32(d[0]), toFloat32(d[1]), toFloat32(d[2])
		}
	}
}

func toBFloat16(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.BFloat16) }

func toFloat32(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }
