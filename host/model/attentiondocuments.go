package model

import (
	"math/bits"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Fused attention masks later keys only: cuDNN supports row lengths, but several documents in a row
// only up to a limit known in advance, or else by a bias for each query, key and head in memory. So
// queries and keys encode their document in additional features: for each bit of the document's
// number, which grows along a row, a query has −separation where its bit is 1, and a key has 1
// where its own is 0. For equal numbers no feature is nonzero in both, and the score is the same to
// the last bit. For a key in an earlier document, with a smaller number, some bit is 0 that is 1 in
// the query's, and the score is lower by separation at least: its exponential is 0. Keys in a later
// document are masked anyway.

// separation is a power of two, exact in bfloat16. Multiplied by 1/√size it far exceeds the
// differences of scores.
const separation = 1 << 18

// countDocumentFeatures returns the number of additional features of each head: the bits of a
// document number, rounded up to a multiple that fused attention supports.
func countDocumentFeatures(context int) int {
	const multiple = 8
	return (bits.Len(uint(context)) + multiple - 1) / multiple * multiple
}

// separatingCore separates the documents given by segments, [batch, context], with a core that only
// masks later keys. The heads of that core have [countDocumentFeatures] more features, so that it
// must not derive the scale of scores from their size.
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
	// −1, padding, has all bits set
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
