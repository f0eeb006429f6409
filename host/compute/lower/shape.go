package lower

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

func lowerReshape(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.Reshape(args[0], n.Type.Shape...)
}

func lowerTranspose(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.TransposeAllAxes(args[0], n.Attr.Axes...)
}

// spread reshapes the operand of a broadcast to the rank of the result, with axes of
// size 1 where the result has new ones.
func spread(n *program.Node, x *graph.Node) *graph.Node {
	if x.IsScalar() {
		return x
	}
	shape := slices.Repeat([]int{1}, n.Type.Rank())
	for i, axis := range n.Attr.Axes {
		shape[axis] = x.Shape().Dim(i)
	}
	return graph.Reshape(x, shape...)
}

func lowerBroadcast(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.BroadcastToDims(spread(n, args[0]), n.Type.Shape...)
}

func lowerSlice(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if args[0].IsScalar() {
		return args[0]
	}
	axes := make([]graph.SliceAxisSpec, len(n.Attr.Start))
	for i := range axes {
		axes[i] = graph.AxisRange(n.Attr.Start[i], n.Attr.Limit[i]).Stride(n.Attr.Stride[i])
	}
	return graph.Slice(args[0], axes...)
}

func lowerConcatenate(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.Concatenate(args, n.Attr.Axes[0])
}

// lowerSortColumns finds the order of the columns by comparing all pairs of keys, as the
// Go backend has no sort. Gathering the columns takes longer than that.
func lowerSortColumns(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	x, keys := args[0], args[1]
	shape := n.Type.Shape
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	count := int(n.Type.Size()) / (rows * columns)
	index := sortedOrder(graph.Reshape(keys, count, columns))
	// Columns are gathered as rows of one long matrix.
	first := graph.MulScalar(graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, count, columns), 0), columns)
	index = graph.Reshape(graph.Add(index, first), count*columns, 1)
	x = graph.TransposeAllAxes(graph.Reshape(x, count, rows, columns), 0, 2, 1)
	x = graph.Gather(graph.Reshape(x, count*columns, rows), index)
	x = graph.TransposeAllAxes(graph.Reshape(x, count, columns, rows), 0, 2, 1)
	return graph.Reshape(x, shape...)
}

// sortedOrder returns [b,r], the position in keys[b,n] of the key that comes r-th in
// descending order, where NaN is less than any number and equals itself.
func sortedOrder(keys *graph.Node) *graph.Node {
	g, count, n := keys.Graph(), keys.Shape().Dim(0), keys.Shape().Dim(1)
	square := shapes.Make(dtypes.Int32, count, n, n)
	along := func(v *graph.Node, axis int) *graph.Node { // repeats v along a new axis
		return graph.BroadcastToDims(graph.InsertAxes(v, axis), square.Dimensions...)
	}
	one, other := along(keys, 2), along(keys, 1)
	nan := graph.NotEqual(keys, keys)
	oneNaN, otherNaN := along(nan, 2), along(nan, 1)
	equal := graph.LogicalOr(graph.Equal(one, other), graph.LogicalAnd(oneNaN, otherNaN))
	greater := graph.LogicalOr(graph.GreaterThan(one, other), graph.LogicalAnd(otherNaN, graph.LogicalNot(oneNaN)))
	i, j := graph.Iota(g, square, 1), graph.Iota(g, square, 2)
	before := graph.LogicalOr(greater, graph.LogicalAnd(equal, graph.LessThan(i, j)))
	rank := graph.ReduceSum(graph.ConvertDType(before, dtypes.Int32), 1) // [b, j]: how many keys come before j
	here := graph.Equal(along(rank, 1), i)                               // [b, r, j]: whether j is the r-th
	return graph.ReduceSum(graph.Mul(graph.ConvertDType(here, dtypes.Int32), j), 2)
}
