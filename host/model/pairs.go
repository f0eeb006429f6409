package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model/architecture"
)

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

// apply returns normalized queries and keys, and the adjoint: from those of the results to those of queries, keys and
// gains. A nil norm changes nothing.
func (n *queryKeyNorm) apply(query, key points, r *rope) (q, k points, back func(dq, dk points) (points, points, []*graph.Node)) {
	if n == nil {
		return query, key, func(dq, dk points) (points, points, []*graph.Node) { return dq, dk, nil }
	}
	q, queryBack := r.normalize(query, n.query, n.epsilon)
	k, keyBack := r.normalize(key, n.key, n.epsilon)
	return q, k, func(dq, dk points) (points, points, []*graph.Node) {
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
