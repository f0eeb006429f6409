package model

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A model that keeps documents apart ([Options]) reads rows that hold several of them, one behind the other, or one and
// padding: attention stays within a document, no target is in another document than what predicts it, and each target
// has a weight. Each loss is then that of the document alone. Positions need not begin anew: rotary positions act by
// their differences.
//
// A batch is [batch, 3, context+1]: tokens, segments and weights of each row.

// Planes is the number of values that a batch of documents holds for each place: token, segment and weight.
const Planes = 3

// Padding is the segment number of places without a document. Quantizers of activations see zeros there.
const Padding = -1

// A DocumentRow is one row of a batch of documents. Its slices share the batch's memory.
type DocumentRow struct {
	Tokens   []int32 // context+1 ids; any valid ids in padding
	Segments []int32 // number of the document at each place, from 0, or Padding
	weights  []int32 // bits of float32 numbers
}

// DocumentRows returns the rows of a batch, [batch, 3, context+1].
func DocumentRows(batch []int32, context int) []DocumentRow {
	places := context + 1
	var rows []DocumentRow
	for ; len(batch) >= Planes*places; batch = batch[Planes*places:] {
		rows = append(rows, DocumentRow{batch[:places], batch[places : 2*places], batch[2*places : 3*places]})
	}
	return rows
}

// Weight returns the weight of the loss of predicting the token at a place. Places with a weight begin at 1.
func (r DocumentRow) Weight(place int) float32 { return math.Float32frombits(uint32(r.weights[place])) }

// SetWeight sets what [DocumentRow.Weight] returns. The weight of place 0, which nothing predicts, stays 0.
func (r DocumentRow) SetWeight(place int, weight float32) {
	r.weights[place] = int32(math.Float32bits(weight))
}

// TotalWeight adds up the weights of a batch.
func TotalWeight(batch []int32, context int) float64 {
	sum := 0.0
	for _, r := range DocumentRows(batch, context) {
		for place := 1; place <= context; place++ {
			sum += float64(r.Weight(place))
		}
	}
	return sum
}

// NormalizeWeights scales the weights of batches so that the mean of all their losses is the sum of weighted losses
// divided by the sum of weights. It returns false if all weights are zero.
func NormalizeWeights(batches [][]int32, context int) bool {
	total, losses := 0.0, 0
	for _, b := range batches {
		total += TotalWeight(b, context)
		losses += len(b) / (Planes * (context + 1)) * context
	}
	if total == 0 {
		return false
	}
	for _, b := range batches {
		ScaleWeights(b, context, float64(losses)/total)
	}
	return true
}

// ScaleWeights multiplies the weights of a batch by a factor.
func ScaleWeights(batch []int32, context int, factor float64) {
	for _, r := range DocumentRows(batch, context) {
		for place := 1; place <= context; place++ {
			r.SetWeight(place, float32(float64(r.Weight(place))*factor))
		}
	}
}

// sequences is what a graph reads of a batch.
type sequences struct {
	tokens   *graph.Node // [batch, context+1]
	segments *graph.Node // [batch, context] of the inputs, nil: each row is one document
	weights  *graph.Node // [batch, context] of the targets, nil: all are 1
}

// readBatch takes a batch apart.
func (m *transformer) readBatch(batch *graph.Node) sequences {
	if !m.Documents {
		return sequences{tokens: batch}
	}
	plane := func(i, from, to int) *graph.Node {
		return graph.Squeeze(graph.Slice(batch, graph.AxisRange(), graph.AxisElem(i), graph.AxisRange(from, to)), 1)
	}
	places := batch.Shape().Dim(2)
	return sequences{
		tokens:   plane(0, 0, places),
		segments: plane(1, 0, places-1),
		weights:  graph.Bitcast(plane(2, 1, places), dtypes.Float32),
	}
}

// withoutPadding lets a quantizer see zeros in place of padding, so that no statistic over a batch depends on it.
func (q ActivationQuantizer) withoutPadding(segments *graph.Node) ActivationQuantizer {
	if q == nil || segments == nil {
		return q
	}
	used := graph.GreaterOrEqual(graph.Reshape(segments, -1, 1), graph.ScalarZero(segments.Graph(), segments.DType()))
	return func(site ActivationSite, x *graph.Node) *graph.Node {
		return q(site, graph.Mul(x, graph.ConvertDType(used, x.DType())))
	}
}

// sameDocument tells which keys are in the document of a query, [batch, queries, keys].
func sameDocument(segments *graph.Node) *graph.Node {
	return graph.Equal(graph.InsertAxes(segments, 2), graph.InsertAxes(segments, 1))
}

// attentionByPosition is [attention] on tensors in which positions come before features, [batch, context, heads, size],
// the order in which the products of a linear layer leave them and in which GPUs compute attention as one operation:
// nothing large is transposed. core mixes the values.
//
// The rows of the weight are reordered first, so that in each head of queries and keys all first coordinates come before
// all second ones.
func attentionByPosition(x, w *graph.Node, norms *queryKeyNorm, r *rope, core attentionCore) *graph.Node {
	rows := r.byCoordinate(w)
	if c, ok := lower.CodesOf(w); ok {
		c.Map(r.byCoordinate).AttachTo(rows)
	}
	queries, keys := r.heads*r.size, r.keyHeads*r.size
	projected := timesRounded(x, rows) // [tokens, queries, keys and values]
	query := graph.SliceAxis(projected, 1, graph.AxisRange(0, queries))
	key := graph.SliceAxis(projected, 1, graph.AxisRange(queries, queries+keys))
	value := r.byHead(graph.SliceAxis(projected, 1, graph.AxisRange(queries+keys)))
	query, key, normBack := normalizeBoth(norms, query, key, r.normalizeByPosition)
	mixed, coreBack := core(r.rotated(r.byHead(query), r.turn, 1), r.rotated(r.byHead(key), r.turn, 1), value)

	inputs := append([]*graph.Node{x, w}, norms.gains()...)
	return autodiff.Custom(r.joinHeads(mixed), inputs, func(dy *graph.Node) []*graph.Node {
		dQuery, dKey, dValue := coreBack(r.byHead(dy))
		dQuery, dKey = r.joinHeads(r.rotated(dQuery, r.turn, -1)), r.joinHeads(r.rotated(dKey, r.turn, -1))
		dQuery, dKey, dGains := normBack(dQuery, dKey)
		dProjected := concatenateColumns(dQuery, dKey, r.joinHeads(dValue))
		dw := r.inFeatureOrder(transposedTimes(dProjected, x))
		return append([]*graph.Node{times(dProjected, rows), dw}, dGains...)
	})
}

// byHead turns [tokens, heads·size] into [batch, context, heads, size].
func (r *rope) byHead(x *graph.Node) *graph.Node {
	return graph.Reshape(x, r.batch, r.context, x.Shape().Dim(1)/r.size, r.size)
}

// joinHeads is the inverse of byHead.
func (r *rope) joinHeads(x *graph.Node) *graph.Node {
	return graph.Reshape(x, r.batch*r.context, x.Shape().Dim(2)*r.size)
}

// rotated turns the points of x [batch, context, heads, size], whose coordinates are the halves of the last axis, and turns
// them back for direction −1. Each coordinate reads the other one of its point where that is: halves that are computed apart
// would have to be joined, and compilers write what they join to memory.
func (r *rope) rotated(x *graph.Node, turn rotation, direction float32) *graph.Node {
	dims := x.Shape().Dimensions
	halves := graph.Reshape(x, dims[0], dims[1], dims[2], 2, r.size/2)
	table := func(t *graph.Node) *graph.Node { return graph.Reshape(t, 1, dims[1], 1, 1, r.size/2) }
	signs := engine.Constant(x.Graph(), []float32{-direction, direction}, 1, 1, 1, 2, 1)
	y := graph.Add(graph.Mul(halves, table(turn.cos)), graph.Mul(graph.Reverse(halves, 3), graph.Mul(table(turn.sin), signs)))
	return graph.Reshape(y, dims...)
}

// byCoordinate brings the rows of queries and keys of the fused weight, or those of one of the two, [heads·size, n] at
// least, into the order of coordinates within each head.
func (r *rope) byCoordinate(w *graph.Node) *graph.Node { return r.reorder(w, r.size/2, 2) }

// inFeatureOrder is the inverse of byCoordinate.
func (r *rope) inFeatureOrder(w *graph.Node) *graph.Node { return r.reorder(w, 2, r.size/2) }

// reorder transposes the rows of each head of queries and keys, seen as a matrix of the given size.
func (r *rope) reorder(w *graph.Node, rows, columns int) *graph.Node {
	if r.pairing != architecture.Interleaved { // halves already
		return w
	}
	all, n := w.Shape().Dim(0), w.Shape().Dim(1)
	turned := min(all, (r.heads+r.keyHeads)*r.size)
	heads := graph.Reshape(graph.Slice(w, graph.AxisRange(0, turned)), turned/r.size, rows, columns, n)
	out := graph.Reshape(graph.TransposeAllAxes(heads, 0, 2, 1, 3), turned, n)
	if turned == all {
		return out
	}
	return graph.Concatenate([]*graph.Node{out, graph.Slice(w, graph.AxisRange(turned))}, 0)
}

// normalizeByPosition is [rope.normalize] for x [tokens, heads·size] in the order of coordinates.
func (r *rope) normalizeByPosition(x, gain *graph.Node, epsilon float64) (y *graph.Node, back func(dy *graph.Node) (dx, dGain *graph.Node)) {
	rows := func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, gain.Shape().Dim(0)) } // what is normalized together
	same := func(y *graph.Node) *graph.Node { return graph.Reshape(y, x.Shape().Dimensions...) }
	column := func(gain *graph.Node) *graph.Node { return graph.Reshape(gain, -1, 1) }
	y, rowsBack := normalizeRows(rows(x), graph.Reshape(r.byCoordinate(column(gain)), -1), epsilon)
	return same(y), func(dy *graph.Node) (*graph.Node, *graph.Node) {
		dx, dGain := rowsBack(rows(dy))
		return same(dx), graph.Reshape(r.inFeatureOrder(column(dGain)), -1)
	}
}

// concatenateColumns puts matrices with equally many rows beside each other. It is a sum, because compilers compute what is added
// as part of the sum, but write what they concatenate to memory first.
func concatenateColumns(parts ...*graph.Node) *graph.Node {
	width, at := 0, 0
	for _, x := range parts {
		width += x.Shape().Dim(1)
	}
	var sum *graph.Node
	for _, x := range parts {
		n := x.Shape().Dim(1)
		wide := graph.Pad(x, graph.ScalarZero(x.Graph(), x.DType()), compute.PadAxis{}, compute.PadAxis{Start: at, End: width - at - n})
		if at += n; sum == nil {
			sum = wide
			continue
		}
		sum = graph.Add(sum, wide)
	}
	return sum
}
