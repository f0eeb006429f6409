package engine

import (
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// deviceKey is the key under which a graph keeps its device.
type deviceKey struct{}

// DeviceOf returns the device for which the graph is built.
func DeviceOf(g *graph.Graph) *Device { return g.State(deviceKey{}).(*Device) }

// InBFloat16 reports whether the graph's device was opened with [device.BFloat16].
func InBFloat16(g *graph.Graph) bool { return DeviceOf(g).options.Precision == device.BFloat16 }

// Operand returns x in the element type in which [DotGeneral] reads it, so that the operand of
// several products is converted only once.
func Operand(x *graph.Node) *graph.Node {
	if !InBFloat16(x.Graph()) {
		return x
	}
	if known, ok := graph.NoteOf[operand](x); ok {
		return known.rounded
	}
	return graph.ConvertDType(x, shapes.BFloat16)
}

type operand struct{ rounded *graph.Node }

// NoteOperand records that rounded is x in bfloat16, so that [Operand] need not convert x.
func NoteOperand(x, rounded *graph.Node) { graph.Note(x, operand{rounded}) }

// ShortOperand returns the bfloat16 node that x was converted from, or else x.
func ShortOperand(x *graph.Node) *graph.Node {
	if op := x.Operation(); op != nil && op.Name == "convert" && x.DType() == shapes.Float32 &&
		op.Args[0].DType() == shapes.BFloat16 {
		return op.Args[0]
	}
	return x
}

// DotGeneral multiplies two float32 nodes over their contracted axes, for each element of the batch
// axes, with operands rounded to the precision of the graph's device; the sums and the result are
// float32. The result has the batch axes, then the other axes of a, then those of b.
func DotGeneral(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	return product(Operand(a), aContracted, aBatch, Operand(b), bContracted, bBatch, shapes.Float32)
}

// DotGeneralRounded is [DotGeneral] with its float32 result also rounded to the device's precision.
// In bfloat16 it takes half the memory until an elementwise operation reads it.
func DotGeneralRounded(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	a, b = Operand(a), Operand(b)
	y := product(a, aContracted, aBatch, b, bContracted, bBatch, a.DType())
	return graph.ConvertDType(y, shapes.Float32)
}

// ExactDot is [DotGeneral] in float32, whatever the precision of the device.
func ExactDot(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	return product(a, aContracted, aBatch, b, bContracted, bBatch, a.DType())
}

func product(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
	result shapes.DType,
) *graph.Node {
	return graph.Product{Contracted: [2][]int{aContracted, bContracted},
		Batch: [2][]int{aBatch, bBatch}, Result: result,
		Exact: !DeviceOf(a.Graph()).options.TF32}.Of(a, b)
}

// Rounded returns x, rounded to the precision of the graph's device, as a float32 node.
func Rounded(x *graph.Node) *graph.Node {
	if !InBFloat16(x.Graph()) {
		return x
	}
	// Without the barrier, XLA would elide both conversions.
	short := graph.Barrier(graph.ConvertDType(x, shapes.BFloat16))[0]
	return graph.ConvertDType(short, shapes.Float32)
}

// DotIntegers returns a·bᵀ, float32 [m, n], for two int8 nodes [m, k] and [n, k], with row i
// scaled by rows[i] ([m, 1]) and column j by columns[j] ([n, 1], or nil). The sums are exact for k
// up to [matmul.MaxCodes]. If rounded is set, the result is rounded to the precision of the device.
func DotIntegers(a, b, rows, columns *graph.Node, rounded bool) *graph.Node {
	sums := product(a, []int{1}, nil, b, []int{1}, nil, shapes.Int32)
	y := graph.Mul(graph.ConvertDType(sums, shapes.Float32), rows)
	if columns != nil {
		y = graph.Mul(y, graph.Reshape(columns, 1, -1))
	}
	if rounded {
		y = Rounded(y)
	}
	return y
}

// LoopBody computes the next state of a loop, with the same shapes as state. i is the iteration
// index, an int32 scalar that starts at 0, and fixed are the loop-invariant values. LoopBody must
// not use other nodes.
type LoopBody func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node

// Loop applies a body n times to a state, in the memory of one iteration, and returns the final
// state.
func Loop(g *graph.Graph, n int, fixed, state []*graph.Node, body LoopBody) []*graph.Node {
	all := append(append([]*graph.Node{graph.Const(g, int32(0))}, fixed...), state...)
	more := func(in []*graph.Node) *graph.Node {
		return graph.LessThan(in[0], graph.Const(g, int32(n)))
	}
	round := func(in []*graph.Node) []*graph.Node {
		i, fixed, state := in[0], in[1:1+len(fixed)], in[1+len(fixed):]
		next := append([]*graph.Node{graph.AddScalar(i, 1)}, fixed...)
		return append(next, body(i, fixed, state)...)
	}
	return graph.While(more, round, all)[1+len(fixed):]
}
