package model

import (
	"math"
	"math/bits"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
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

// Fused attention masks only later keys: cuDNN supports row lengths, but several documents in a row
// only up to a limit known in advance, or with a bias in memory for each query, key and head. So
// queries and keys encode the number of their document, which grows along a row, in additional
// features. For each bit, a query has −separation if its bit is 1, and a key has 1 if its bit is 0.
// If the numbers are equal, no feature is nonzero in both, and the score is the same to the last
// bit. If the key is in an earlier document, some bit is 0 in its number and 1 in the query's, and
// the score is lower by at least separation: its exponential is 0. Keys in later documents are
// masked anyway.

// separation is a power of two, and thus exact in bfloat16. Multiplied by the factor of scores, it
// far exceeds the differences between scores.
const separation = 1 << 18

// countDocumentFeatures returns the number of additional features of each head: the bits of a
// document number, rounded up to a multiple that fused attention supports.
func countDocumentFeatures(context int) int {
	const multiple = 8
	return (bits.Len(uint(context)) + multiple - 1) / multiple * multiple
}

// separatingCore separates the documents in segments, [batch, context], with a core that only masks
// later keys. The core gets heads with [countDocumentFeatures] more features, so it must not derive
// the scale of scores from their size.
func separatingCore(segments *graph.Node, core attentionCore) attentionCore {
	queryFeatures, keyFeatures := documentFeatures(segments)
	more := queryFeatures.Shape().Dim(3)
	return func(query, key, value *graph.Node) (*graph.Node, attentionBack) {
		size := query.Shape().Dim(3)
		widened := func(x *graph.Node) *graph.Node { return padFeatures(x, 0, more) }
		extended := func(x, features *graph.Node) *graph.Node { // a sum, which compilers fuse with x
			y, z := widened(x), padFeatures(features, size, 0)
			return graph.Add(y, graph.BroadcastToDims(z, y.Shape().Dimensions...))
		}
		narrowed := func(x *graph.Node) *graph.Node {
			return graph.SliceAxis(x, 3, graph.AxisRange(0, size))
		}
		mixed, back := core(extended(query, queryFeatures), extended(key, keyFeatures), widened(value))
		return narrowed(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
			dQuery, dKey, dValue := back(widened(dMixed))
			return narrowed(dQuery), narrowed(dKey), narrowed(dValue)
		}
	}
}

// documentFeatures returns the additional features of queries and of keys, [batch, context, 1,
// features], for documents numbered in the order of a row. Padding comes after all documents: all
// its bits are 1.
func documentFeatures(segments *graph.Node) (queries, keys *graph.Node) {
	g, batch, context := segments.Graph(), segments.Shape().Dim(0), segments.Shape().Dim(1)
	dims := []int{batch, context, 1, countDocumentFeatures(context)}
	// All bits of −1, the number of padding, are set.
	number := graph.BroadcastToDims(graph.Reshape(segments, batch, context, 1, 1), dims...)
	index := graph.Iota(g, shapes.Make(dtypes.Int32, dims...), 3)
	bit := graph.BitwiseAnd(graph.BitwiseShiftRightLogical(number, index),
		graph.BroadcastToDims(graph.Const(g, int32(1)), dims...))
	float := graph.ConvertDType(bit, dtypes.Float32)
	return graph.MulScalar(float, -separation), graph.OneMinus(float)
}

// padFeatures pads the last of the four axes of x with zeros.
func padFeatures(x *graph.Node, before, after int) *graph.Node {
	return graph.Pad(x, graph.ScalarZero(x.Graph(), x.DType()), compute.PadAxis{}, compute.PadAxis{},
		compute.PadAxis{}, compute.PadAxis{Start: before, End: after})
}
