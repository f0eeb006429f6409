package model

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A rope holds what the attention layers of one graph share: shapes, the tables of the rotary position embedding (Su et
// al., 2021) and the causal mask.
//
// Two features of a head, which its pairing names, are the coordinates of a point that is rotated by the angle
// position·frequency. By feature, the layers here keep first coordinates and second coordinates in tensors of their own, so that a
// rotation is four products and two sums of whole tensors; scores do not depend on the order of features within a head.
type rope struct {
	batch, context, heads, keyHeads, size int // size: features of a head
	pairing                               architecture.Pairing

	// Tables of shape [1, size/2, batch·context], and [1, context, 1, size/2] where there is a core.
	turn, turnScaled rotation    // turnScaled is for queries: it has the factor 1/√size of the scores
	mask             *graph.Node // [1 or batch, 1, context, context]: 0 where a query sees a key, −∞ where not

	core   attentionCore // of attention by position; nil: by feature
	again  bool          // the backward pass computes attention again
	cached *cached       // of attention to what caches hold; nil: to the tokens at hand
}

// newRope makes what attention needs in the way that is best for the graph's device.
// segments are those of the documents in each row, [batch, context], nil for one.
func newRope(g *graph.Graph, s architecture.Settings, batch, context int, segments *graph.Node) *rope {
	if core := chooseCore(g, s, context, segments); core != nil {
		return newRopeByPosition(g, s, batch, context, core)
	}
	r := newRopeByFeature(g, s, batch, context)
	if segments != nil {
		r.hide(sameDocument(segments))
	}
	return r
}

// hide leaves in the mask what a query may see, [batch, queries, keys].
func (r *rope) hide(seen *graph.Node) {
	dims := []int{r.batch, 1, r.context, r.context}
	hidden := graph.Scalar(seen.Graph(), r.mask.DType(), math.Inf(-1))
	r.mask = graph.Where(graph.InsertAxes(seen, 1), graph.BroadcastToDims(r.mask, dims...), graph.BroadcastToDims(hidden, dims...))
}

// headsOf is a rope without tables and mask.
func headsOf(s architecture.Settings, batch, context int, core attentionCore) *rope {
	return &rope{batch: batch, context: context, heads: s.Heads, keyHeads: s.KVHeads, size: s.HeadSize, pairing: s.RopePairs, core: core}
}

func newRopeByPosition(g *graph.Graph, s architecture.Settings, batch, context int, core attentionCore) *rope {
	r := headsOf(s, batch, context, core)
	table := func(f func(float64) float64) *graph.Node {
		return engine.Constant(g, s.ByPosition(context, f), 1, context, 1, r.size/2)
	}
	r.turn = rotation{table(math.Cos), table(math.Sin)}
	return r
}

func newRopeByFeature(g *graph.Graph, s architecture.Settings, batch, context int) *rope {
	r := headsOf(s, batch, context, nil)
	frequencies := s.RopeFrequencies()
	table := func(f func(float64) float64, factor float64) *graph.Node {
		values := make([]float32, 0, r.size/2*batch*context)
		for _, frequency := range frequencies {
			for range batch {
				for position := range context {
					values = append(values, float32(factor*f(float64(position)*frequency)))
				}
			}
		}
		return engine.Constant(g, values, 1, r.size/2, batch*context)
	}
	scale := 1 / math.Sqrt(float64(r.size))
	r.turn = rotation{table(math.Cos, 1), table(math.Sin, 1)}
	r.turnScaled = rotation{table(math.Cos, scale), table(math.Sin, scale)}
	mask := make([]float32, context*context) // hides later keys from a query
	for query := range context {
		for key := query + 1; key < context; key++ {
			mask[query*context+key] = float32(math.Inf(-1))
		}
	}
	r.mask = engine.Constant(g, mask, 1, 1, context, context)
	return r
}

// points are features of all heads as first and second coordinates, [heads, size/2, tokens] each.
type points struct{ first, second *graph.Node }

// join returns both coordinates, [heads, size, tokens].
func (p points) join() *graph.Node { return graph.Concatenate([]*graph.Node{p.first, p.second}, 1) }

// splitPoints is the inverse of join.
func splitPoints(x *graph.Node) points {
	half := x.Shape().Dim(1) / 2
	return points{graph.SliceAxis(x, 1, graph.AxisRange(0, half)), graph.SliceAxis(x, 1, graph.AxisRange(half))}
}

// rotation holds cosines and sines.
type rotation struct{ cos, sin *graph.Node }

// apply turns the points.
func (r rotation) apply(p points) points {
	return points{
		graph.Sub(graph.Mul(p.first, r.cos), graph.Mul(p.second, r.sin)),
		graph.Add(graph.Mul(p.first, r.sin), graph.Mul(p.second, r.cos)),
	}
}

// back is the adjoint of apply: the rotation by the opposite angles.
func (r rotation) back(p points) points {
	return points{
		graph.Add(graph.Mul(p.first, r.cos), graph.Mul(p.second, r.sin)),
		graph.Sub(graph.Mul(p.second, r.cos), graph.Mul(p.first, r.sin)),
	}
}

// splitWeight cuts the fused weight into the rows of the queries' first and second coordinates, those of the keys, and
// those of the values.
func (r *rope) splitWeight(w *graph.Node) [5]*graph.Node {
	queries, keys := r.heads*r.size, r.keyHeads*r.size
	q := r.splitRows(graph.Slice(w, graph.AxisRange(0, queries)))
	k := r.splitRows(graph.Slice(w, graph.AxisRange(queries, queries+keys)))
	return [5]*graph.Node{q[0], q[1], k[0], k[1], graph.Slice(w, graph.AxisRange(queries+keys))}
}

// joinWeight is the inverse of splitWeight on the concatenated parts.
func (r *rope) joinWeight(parts *graph.Node) *graph.Node {
	queries, keys := r.heads*r.size, r.keyHeads*r.size
	values := graph.Slice(parts, graph.AxisRange(queries+keys))
	if queries == keys && r.pairing == architecture.Interleaved { // both in one transposition
		in := parts.Shape().Dim(1)
		both := graph.Reshape(graph.Slice(parts, graph.AxisRange(0, 2*queries)), 2, 2, queries/2, in)
		both = graph.Reshape(graph.TransposeAllAxes(both, 0, 2, 1, 3), 2*queries, in)
		return graph.Concatenate([]*graph.Node{both, values}, 0)
	}
	return graph.Concatenate([]*graph.Node{
		r.joinRows(graph.Slice(parts, graph.AxisRange(0, queries))),
		r.joinRows(graph.Slice(parts, graph.AxisRange(queries, queries+keys))),
		values,
	}, 0)
}

// splitRows separates rows of first and of second coordinates, [heads·size/2, n] each, of [heads·size, n].
func (r *rope) splitRows(rows *graph.Node) [2]*graph.Node {
	features, n := rows.Shape().Dim(0), rows.Shape().Dim(1)
	var out [2]*graph.Node
	for i := range out {
		if r.pairing == architecture.Interleaved {
			pairs := graph.Reshape(rows, features/2, 2, n)
			out[i] = graph.Reshape(graph.SliceAxis(pairs, 1, graph.AxisElem(i)), features/2, n)
			continue
		}
		halves := graph.Reshape(rows, features/r.size, 2, r.size/2, n)
		out[i] = graph.Reshape(graph.SliceAxis(halves, 1, graph.AxisElem(i)), features/2, n)
	}
	return out
}

// joinRows is the inverse of splitRows on the concatenated parts.
func (r *rope) joinRows(parts *graph.Node) *graph.Node {
	features, n := parts.Shape().Dim(0), parts.Shape().Dim(1)
	if r.pairing == architecture.Interleaved {
		return graph.Reshape(graph.TransposeAllAxes(graph.Reshape(parts, 2, features/2, n), 1, 0, 2), features, n)
	}
	halves := graph.Reshape(parts, 2, features/r.size, r.size/2, n)
	return graph.Reshape(graph.TransposeAllAxes(halves, 1, 0, 2, 3), features, n)
}

// queryKeyNorm normalizes queries and keys before their rotation (Dehghani et al., 2023): over the features of all heads
// of a token together where the gains are [heads·size], and each head alone where they are [size]. Gains are in the order
// of the features.
type queryKeyNorm struct {
	query, key *graph.Node
	epsilon    float64
}

// gains lists the inputs of the norm beside queries and keys.
func (n *queryKeyNorm) gains() []*graph.Node {
	if n == nil {
		return nil
	}
	return []*graph.Node{n.query, n.key}
}

// with is n with other gains, which are in the order of [queryKeyNorm.gains].
func (n *queryKeyNorm) with(gains []*graph.Node) *queryKeyNorm {
	if n == nil {
		return nil
	}
	return &queryKeyNorm{query: gains[0], key: gains[1], epsilon: n.epsilon}
}

// normalizeBoth returns queries and keys normalized by a function for each of the two, and the adjoint: from those of the
// results to those of queries, keys and gains. A nil norm changes nothing.
func normalizeBoth[T any](n *queryKeyNorm, query, key T, normalize func(x T, gain *graph.Node, epsilon float64) (T, func(dy T) (T, *graph.Node))) (
	q, k T, back func(dq, dk T) (T, T, []*graph.Node)) {
	if n == nil {
		return query, key, func(dq, dk T) (T, T, []*graph.Node) { return dq, dk, nil }
	}
	q, queryBack := normalize(query, n.query, n.epsilon)
	k, keyBack := normalize(key, n.key, n.epsilon)
	return q, k, func(dq, dk T) (T, T, []*graph.Node) {
		dQuery, dQueryGain := queryBack(dq)
		dKey, dKeyGain := keyBack(dk)
		return dQuery, dKey, []*graph.Node{dQueryGain, dKeyGain}
	}
}

// normalize is RMSNorm over the features of both coordinates, and its adjoint; see [rmsNorm] and [queryKeyNorm].
func (r *rope) normalize(x points, gain *graph.Node, epsilon float64) (y points, back func(dy points) (points, *graph.Node)) {
	width := gain.Shape().Dim(0)
	features, repeats := []int{0, 1}, []int{2} // axes that a mean goes over, and those along which a gain is the same
	if width == r.size {
		features, repeats = []int{1}, []int{0, 2}
	}
	gains := r.splitRows(graph.Reshape(gain, width, 1))
	g := points{graph.Reshape(gains[0], width/r.size, r.size/2, 1), graph.Reshape(gains[1], width/r.size, r.size/2, 1)}
	meanProduct := func(a, b points) *graph.Node { // [1 or heads, 1, tokens]
		sum := graph.Add(graph.Mul(a.first, b.first), graph.Mul(a.second, b.second))
		return graph.MulScalar(graph.ReduceAndKeep(sum, graph.ReduceSum, features...), 1/float64(width))
	}
	scale := graph.Reciprocal(graph.Sqrt(graph.AddScalar(meanProduct(x, x), epsilon)))
	n := points{graph.Mul(x.first, scale), graph.Mul(x.second, scale)}
	return points{graph.Mul(n.first, g.first), graph.Mul(n.second, g.second)}, func(dy points) (points, *graph.Node) {
		dn := points{graph.Mul(dy.first, g.first), graph.Mul(dy.second, g.second)}
		projection := meanProduct(dn, n)
		dx := points{
			graph.Mul(graph.Sub(dn.first, graph.Mul(n.first, projection)), scale),
			graph.Mul(graph.Sub(dn.second, graph.Mul(n.second, projection)), scale),
		}
		dGain := graph.Concatenate([]*graph.Node{
			graph.Reshape(graph.ReduceSum(graph.Mul(dy.first, n.first), repeats...), width/2, 1),
			graph.Reshape(graph.ReduceSum(graph.Mul(dy.second, n.second), repeats...), width/2, 1),
		}, 0)
		return dx, graph.Reshape(r.joinRows(dGain), width)
	}
}
