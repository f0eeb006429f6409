package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// With [Options.Documents], a model reads rows that hold several documents, one after the other, or
// one and padding: attention is restricted to a document, a target is always in the same document
// as the token that predicts it, and each target has a weight. The losses of a document are the
// same as in a row of its own. Positions do not restart: rotary position embeddings depend only on
// differences of positions.
//
// A batch is [batch, 3, context+1]: tokens, segments and weights of each row.

// Planes is the number of values per position in a batch of documents: token, segment and weight.
const Planes = 3

// Padding is the segment number of positions without a document, for which activation quantizers
// get zeros.
const Padding = -1

// A DocumentRow is one row of a batch of documents. Its slices share the batch's memory.
type DocumentRow struct {
	Tokens []int32 // context+1 ids; any valid ids in padding
	// number of the document at each position, ascending from 0, or Padding, after all documents
	Segments []int32
	weights  []int32 // bits of float32 numbers
}

// DocumentRows returns the rows of a batch, [batch, 3, context+1].
func DocumentRows(batch []int32, context int) []DocumentRow {
	length := context + 1
	var rows []DocumentRow
	for ; len(batch) >= Planes*length; batch = batch[Planes*length:] {
		tokens, segments, weights := batch[:length], batch[length:2*length], batch[2*length:3*length]
		rows = append(rows, DocumentRow{tokens, segments, weights})
	}
	return rows
}

// Weight returns the weight of the loss of predicting the token at a position. The first position
// with a weight is 1.
func (r DocumentRow) Weight(position int) float32 {
	return math.Float32frombits(uint32(r.weights[position]))
}

// SetWeight sets the weight that [DocumentRow.Weight] returns. That of position 0, which is never
// predicted, must stay 0.
func (r DocumentRow) SetWeight(position int, weight float32) {
	r.weights[position] = int32(math.Float32bits(weight))
}

// TotalWeight sums the weights of a batch.
func TotalWeight(batch []int32, context int) float64 {
	sum := 0.0
	for _, r := range DocumentRows(batch, context) {
		for position := 1; position <= context; position++ {
			sum += float64(r.Weight(position))
		}
	}
	return sum
}

// NormalizeWeights scales the weights of batches so that the mean of all their losses is the
// weighted mean. It returns false if all weights are zero.
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
		for position := 1; position <= context; position++ {
			r.SetWeight(position, float32(float64(r.Weight(position))*factor))
		}
	}
}

type sequences struct {
	tokens   *graph.Node // [batch, context+1]
	segments *graph.Node // [batch, context] of the inputs, nil: each row is one document
	weights  *graph.Node // [batch, context] of the targets, nil: all are 1
}

func (m *transformer) readBatch(batch *graph.Node) sequences {
	if !m.Documents {
		return sequences{tokens: batch}
	}
	plane := func(i, from, to int) *graph.Node {
		return graph.Squeeze(graph.Slice(batch, graph.AxisRange(), graph.AxisElem(i),
			graph.AxisRange(from, to)), 1)
	}
	length := batch.Shape().Dim(2)
	return sequences{
		tokens:   plane(0, 0, length),
		segments: plane(1, 0, length-1),
		weights:  graph.Bitcast(plane(2, 1, length), dtypes.Float32),
	}
}

// zeroPadding returns a quantizer that sets padding to zero before it calls q, so that statistics
// over a batch do not depend on padding.
func (q ActivationQuantizer) zeroPadding(segments *graph.Node) ActivationQuantizer {
	if q == nil || segments == nil {
		return q
	}
	used := graph.GreaterOrEqual(graph.Reshape(segments, -1, 1),
		graph.ScalarZero(segments.Graph(), segments.DType()))
	return func(site ActivationSite, x *graph.Node) *graph.Node {
		return q(site, graph.Mul(x, graph.ConvertDType(used, x.DType())))
	}
}

// sameDocument reports for each query and key whether they are in the same document, [batch,
// queries, keys].
func sameDocument(segments *graph.Node) *graph.Node {
	return graph.Equal(graph.InsertAxes(segments, 2), graph.InsertAxes(segments, 1))
}
