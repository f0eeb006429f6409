package lower

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

// goSelect gives every operand that is not a scalar the full shape: Where is
// vectorized for these and otherwise computes an index for each element.
func goSelect(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	full := make([]*graph.Node, len(args))
	for i, a := range args {
		full[i] = l.repeat(a, n.Type.Shape)
	}
	return graph.Where(full[0], full[1], full[2])
}

func goBroadcast(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if args[0].IsScalar() {
		return graph.BroadcastToDims(args[0], n.Type.Shape...)
	}
	return l.repeat(spread(n, args[0]), n.Type.Shape)
}

// repeat repeats x along its axes of size 1 to the given shape, of the same rank. A
// scalar stays one. It adds zeros of that shape: the backend vectorizes binary
// operations on such operands, but not its broadcast.
func (l *lowering) repeat(x *graph.Node, shape []int) *graph.Node {
	if x.IsScalar() || slices.Equal(x.Shape().Dimensions, shape) {
		return x
	}
	others := dims(x)
	for i, d := range others {
		if d == 1 {
			others[i] = shape[i]
		} else {
			others[i] = 1
		}
	}
	switch x.DType() {
	case dtypes.Bool:
		bytes := graph.BitwiseOr(graph.Bitcast(x, dtypes.Uint8), stored(l.g, make([]uint8, product(others)), others))
		return graph.Bitcast(bytes, dtypes.Bool)
	case dtypes.Int32:
		return graph.Add(x, stored(l.g, make([]int32, product(others)), others))
	case dtypes.Uint32:
		return graph.Add(x, stored(l.g, make([]uint32, product(others)), others))
	default: // x − 0 is x, also when it is −0
		return graph.Sub(x, l.zeros(others...))
	}
}

// zeros are floats held in memory. A scalar in their place would not make a binary
// operation repeat its other operand.
func (l *lowering) zeros(shape ...int) *graph.Node {
	return l.table(make([]float64, product(shape)), shape...)
}

func product(shape []int) int { return shapes.Make(dtypes.Float32, shape...).Size() }
