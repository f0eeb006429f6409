package lower

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

func lowerReshape(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.Reshape(args[0], n.Type.Shape...)
}

func lowerTranspose(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.TransposeAllAxes(args[0], n.Attr.Axes...)
}

// spread gives the operand of a broadcast the rank of the result: its own axes
// where they go, and 1 elsewhere.
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
