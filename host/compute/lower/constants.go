package lower

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

func lowerConstant(l *lowering, n *program.Node, _ []*graph.Node) *graph.Node {
	a, shape := n.Attr, n.Type.Shape
	switch n.Type.DType {
	case program.Float:
		return l.table(a.Floats, shape...)
	case program.Int:
		return elements(l.g, a.Ints, func(v int64) int32 { return int32(v) }, shape)
	case program.Uint:
		return elements(l.g, a.Ints, func(v int64) uint32 { return uint32(v) }, shape)
	default:
		return elements(l.g, a.Ints, func(v int64) bool { return v != 0 }, shape)
	}
}

// elements returns a constant. A single element is repeated.
func elements[S any, T engine.Element](
	g *graph.Graph, values []S, convert func(S) T, shape []int,
) *graph.Node {
	data := lists.Map(values, convert)
	if len(data) == 1 {
		return graph.BroadcastToDims(graph.Constant(g, data), shape...)
	}
	return graph.Constant(g, data, shape...)
}

func (l *lowering) table(data []float64, shape ...int) *graph.Node {
	return elements(l.g, data, func(v float64) float32 { return float32(v) }, shape)
}

func (l *lowering) scalar(v float64) *graph.Node { return graph.Const(l.g, float32(v)) }

func (l *lowering) integer(v int32) *graph.Node { return graph.Const(l.g, v) }

// lowerIota counts in integers if there are more than 2²⁴ elements, because devices that count in
// float32, by repeatedly adding one, stop there.
func lowerIota(l *lowering, n *program.Node, _ []*graph.Node) *graph.Node {
	axis := n.Attr.Axes[0]
	if n.Type.DType == program.Float && n.Type.Shape[axis] > 1<<24 {
		count := graph.Iota(l.g, shapes.Make(shapes.Int32, n.Type.Shape...), axis)
		return graph.ConvertDType(count, shapes.Float32)
	}
	return graph.Iota(l.g, ShapeOf(n.Type), axis)
}

func lowerRandomBits(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return RandomBits(args[0], graph.Const(l.g, uint32(0)), n.Type.Shape...)
}

// RandomBits returns uint32 numbers of the given shape: the first words of Threefry-2x32-20 (Salmon
// et al. 2011) for a key, uint32[2], and the counters (first, 0), (first+1, 0), …
func RandomBits(key, first *graph.Node, dims ...int) *graph.Node {
	g := key.Graph()
	rotations := [8]uint32{13, 15, 26, 6, 17, 29, 16, 24} // table 2, used in turn
	word := func(i int) *graph.Node {
		return graph.Reshape(graph.Slice(key, graph.AxisElem(i)))
	}
	c := func(v uint32) *graph.Node { return graph.Const(g, v) }
	keys := [3]*graph.Node{word(0), word(1), nil}
	keys[2] = graph.Xor(graph.Xor(keys[0], keys[1]), c(0x1BD11BDA))

	size := shapes.Make(shapes.Uint32, dims...).Size()
	counter := graph.Add(graph.Iota(g, shapes.Make(shapes.Uint32, size), 0), first)
	x0 := graph.Add(counter, keys[0])
	x1 := graph.BroadcastToDims(keys[1], size) // counter word 0 plus the key
	for round := range 20 {
		x0 = graph.Add(x0, x1)
		by := rotations[round%8]
		left, right := graph.Mul(x1, c(1<<by)), graph.ShiftRightLogical(x1, c(32-by))
		x1 = graph.Xor(graph.Add(left, right), x0)
		if round%4 == 3 {
			injection := round/4 + 1
			x0 = graph.Add(x0, keys[injection%3])
			x1 = graph.Add(x1, graph.Add(keys[(injection+1)%3], c(uint32(injection))))
		}
	}
	return graph.Reshape(x0, dims...)
}
