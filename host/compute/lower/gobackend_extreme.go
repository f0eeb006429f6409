package lower

import (
	"github.com/gomlx/compute/shapes"
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/program"
)

// extreme is graph.Max or graph.Min. On the Go backend the result is undefined where
// an operand is NaN: it is either operand, depending on the position in the tensor.
type extreme = func(x, y *graph.Node) *graph.Node

// clipped is a chain of maxima and minima of source with constants, as it is where
// source is a number.
type clipped struct{ source, value *graph.Node }

// goExtreme is a maximum or minimum that is NaN if either operand is. A chain of
// them with constants looks for NaN once, at its source. The same test for results
// inside the chain is in the graph, but is never executed.
func goExtreme(f extreme) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		x, y := n.Args[0], n.Args[1]
		if l.rangeOf(x).nan && !l.rangeOf(y).nan && l.p.TypeOf(y).IsScalar() {
			return l.clip(f, args[0], args[1])
		}
		if l.rangeOf(y).nan && !l.rangeOf(x).nan && l.p.TypeOf(x).IsScalar() {
			return l.clip(f, args[1], args[0])
		}
		out := f(args[0], args[1])
		for i, id := range n.Args {
			if l.rangeOf(id).nan {
				out = l.addNaN(out, args[i])
			}
		}
		return out
	}
}

func (l *lowering) clip(f extreme, x, bound *graph.Node) *graph.Node {
	c, ok := l.clips[x]
	if !ok {
		c = clipped{source: x, value: x}
	}
	c.value = f(c.value, bound)
	out := l.keepNaN(c.source, c.value)
	l.clips[out] = c
	return out
}

// keepNaN returns y where x is a number, and x, hence NaN, elsewhere; y has the
// shape of x.
func (l *lowering) keepNaN(x, y *graph.Node) *graph.Node {
	return graph.Where(l.isNumber(x), y, x)
}

// isNumber is false for NaN. The backend compares faster with a scalar.
func (l *lowering) isNumber(x *graph.Node) *graph.Node {
	return graph.LessOrEqual(x, l.scalar(math.Inf(1)))
}

// addNaN makes out NaN where x is; x may be smaller than out.
func (l *lowering) addNaN(out, x *graph.Node) *graph.Node {
	if slices.Equal(x.Shape().Dimensions, out.Shape().Dimensions) {
		return l.keepNaN(x, out)
	}
	return graph.Add(out, l.keepNaN(x, l.scalar(0)))
}

// goReduceExtreme is a reduction by maximum or minimum that is NaN if any element
// is: the sum of magnitudes, which is the cheapest pass there is, tells.
func goReduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		x, r := args[0], l.rangeOf(n.Args[0])
		out := reduceExtreme(f, x, n.Attr.Axes)
		if !r.nan {
			return out
		}
		if r.lo < 0 {
			x = graph.Abs(x)
		}
		return l.keepNaN(graph.ReduceSum(x, n.Attr.Axes...), out)
	}
}

// reduceExtreme reduces short rows in two steps. On rows of one or a few vectors, the
// backend's kernel spends most of its time on reducing the last vector.
func reduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node, x *graph.Node, axes []int) *graph.Node {
	const part, longest = 8, 64
	d := dims(x)
	last := len(d) - 1
	if len(axes) != 1 || axes[0] != last || d[last] <= part || d[last] > longest || d[last]%part != 0 {
		return f(x, axes...)
	}
	rows := x.Shape().Size() / d[last]
	x = f(graph.Reshape(x, rows, d[last]/part, part), 1)
	if engine.FloatLanes() <= part {
		return graph.Reshape(f(x, 1), d[:last]...)
	}
	// The kernel reads a part of a vector with a load of a whole one (archsimd's LoadFloat32x16Part), which faults where
	// memory ends behind the tensor: one more row of zeros, and it does not.
	x = graph.Concatenate([]*graph.Node{x, graph.Zeros(x.Graph(), shapes.Make(x.DType(), 1, part))}, 0)
	return graph.Reshape(graph.Slice(f(x, 1), graph.AxisRange(0, rows)), d[:last]...)
}
