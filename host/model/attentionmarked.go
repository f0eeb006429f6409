package model

import (
	"math/bits"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Fused attention hides later keys from a query and no others: cuDNN has lengths of rows, but a
// number of documents in a row only up to a limit that has to be known in advance, or else a bias
// for each query, key and head in memory. So queries and keys say themselves of which document they
// are, in more features: for each bit of the document's number, which grows along a row, a query
// has −marking where its bit is 1, and a key has 1 where its own is 0. Of two equal numbers the
// features are never both other than 0, and the score is the same to the last bit. Of a key in an
// earlier document, with a smaller number, some bit is 0 that is 1 in the query's, and the score is
// lower by marking at least: its exponential is 0. Keys in a later document are hidden anyway.

// marking is a power of two, which bfloat16 has. Multiplied by 1/√size it is far more than scores
// are apart.
const marking = 1 << 18

// markedFeatures of each head are for marks: as many as a number of documents has bits, in a
// multiple of what fused attention takes.
func markedFeatures(context int) int {
	const multiple = 8
	return (bits.Len(uint(context)) + multiple - 1) / multiple * multiple
}

// markedCore keeps documents apart, whose segments are given, [batch, context], by a core that
// hides later keys only. That core gets heads with [markedFeatures] more features and must not
// derive the factor of scores from their size.
func markedCore(segments *graph.Node, core attentionCore) attentionCore {
	queryMarks, keyMarks := documentMarks(segments)
	more := queryMarks.Shape().Dim(3)
	return func(query, key, value *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
		size := query.Shape().Dim(3)
		widened := func(x *graph.Node) *graph.Node { return padFeatures(x, 0, more) }
		marked := func(x, marks *graph.Node) *graph.Node { // a sum, which compilers compute where they compute x
			y := widened(x)
			return graph.Add(y, graph.BroadcastToDims(padFeatures(marks, size, 0), y.Shape().Dimensions...))
		}
		narrowed := func(x *graph.Node) *graph.Node { return graph.SliceAxis(x, 3, graph.AxisRange(0, size)) }
		mixed, back := core(marked(query, queryMarks), marked(key, keyMarks), widened(value))
		return narrowed(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
			dQuery, dKey, dValue := back(widened(dMixed))
			return narrowed(dQuery), narrowed(dKey), narrowed(dValue)
		}
	}
}

// documentMarks are the features of queries and of keys, [batch, context, 1, features], for the
// segments of documents that are numbered in the order in which they stand in a row. Padding stands
// behind all of them: all its bits are 1.
func documentMarks(segments *graph.Node) (queries, keys *graph.Node) {
	g, batch, context := segments.Graph(), segments.Shape().Dim(0), segments.Shape().Dim(1)
	dims := []int{batch, context, 1, markedFeatures(context)}
	number := graph.BroadcastToDims(graph.Reshape(segments, batch, context, 1, 1), dims...) // −1, padding, has all bits
	place := graph.Iota(g, shapes.Make(dtypes.Int32, dims...), 3)
	bit := graph.BitwiseAnd(graph.BitwiseShiftRightLogical(number, place), graph.BroadcastToDims(graph.Const(g, int32(1)), dims...))
	float := graph.ConvertDType(bit, dtypes.Float32)
	return graph.MulScalar(float, -marking), graph.OneMinus(float)
}

// padFeatures puts zeros around the last axis of x, of four.
func padFeatures(x *graph.Node, before, after int) *graph.Node {
	return graph.Pad(x, graph.ScalarZero(x.Graph(), x.DType()), compute.PadAxis{}, compute.PadAxis{}, compute.PadAxis{}, compute.PadAxis{Start: before, End: after})
}
