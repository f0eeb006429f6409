package graphs

import (
	"math/bits"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

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
	index := graph.Iota(g, shapes.Make(shapes.Int32, dims...), 3)
	bit := graph.And(graph.ShiftRightLogical(number, index),
		graph.BroadcastToDims(graph.Const(g, int32(1)), dims...))
	float := graph.ConvertDType(bit, shapes.Float32)
	return graph.MulScalar(float, -separation), graph.OneMinus(float)
}

// padFeatures pads the last of the four axes of x with zeros.
func padFeatures(x *graph.Node, before, after int) *graph.Node {
	return graph.PadAxis(x, graph.Scalar(x.Graph(), x.DType(), 0), 3, before, after)
}
