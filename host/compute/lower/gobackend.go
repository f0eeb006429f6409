package lower

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

// goExp squares the exponential of half the argument, which is in the range of the backend's
// function whenever the result is finite and not zero.
func goExp(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	root := graph.Exp(graph.Mul(x, l.scalar(0.5)))
	return l.keepNaN(x, graph.Mul(root, root))
}

// goTanh computes −t/(t+2) with t = e^(−2|x|) − 1, which neither cancels nor overflows. If |x| is
// below a quarter of the square root of the precision, the result is x, the nearest float.
func goTanh(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	magnitude := graph.Abs(x)
	t := graph.Expm1(graph.Mul(magnitude, l.scalar(-2)))
	y := graph.Div(t, graph.Add(t, l.scalar(2)))
	y = graph.Where(graph.LessThan(x, l.scalar(0)), y, graph.Neg(y))
	tiny := l.scalar(1.0 / (1 << (mantissaBits/2 + 2)))
	return graph.Where(graph.LessThan(magnitude, tiny), x, y)
}

// bools applies bitwise operations to bools, which are bytes 0 or 1.
func bools(f func(x, y *graph.Node) *graph.Node) rule {
	return func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		x, y := graph.Bitcast(args[0], dtypes.Uint8), graph.Bitcast(args[1], dtypes.Uint8)
		return graph.Bitcast(f(x, y), dtypes.Bool)
	}
}

// goExtreme returns a maximum or minimum that is NaN if either operand is. For such operands the Go
// backend may return either one.
func goExtreme(f func(x, y *graph.Node) *graph.Node) rule {
	return func(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		out := f(args[0], args[1])
		for _, x := range args {
			if slices.Equal(x.Shape().Dimensions, out.Shape().Dimensions) {
				out = l.keepNaN(x, out)
			} else { // x is repeated
				out = graph.Add(out, l.keepNaN(x, l.scalar(0)))
			}
		}
		return out
	}
}

// keepNaN returns y where x is a number, and NaN where x is NaN. y has the shape of x or is a
// scalar.
func (l *lowering) keepNaN(x, y *graph.Node) *graph.Node {
	number := graph.LessOrEqual(x, l.scalar(math.Inf(1)))
	return graph.Where(number, y, x)
}

// goReduceExtreme returns a reduction by maximum or minimum that is NaN if any element is. It
// detects NaN in the sum of magnitudes, the cheapest reduction.
func goReduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		sum := graph.ReduceSum(graph.Abs(args[0]), n.Attr.Axes...)
		return l.keepNaN(sum, f(args[0], n.Attr.Axes...))
	}
}
