package testdevice

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/sdk/program"
)

// The Go backend deviates from StableHLO: its maximum, minimum and exponential lose NaN; the
// exponential also saturates at ±88; tanh cancels near 0; the sign of NaN is 0; the magnitude of −0
// can be −0; and bools cannot be compared.
func init() {
	floats := func(f func(n *program.Node, args []*graph.Node) *graph.Node) lower.Replacement {
		return func(n *program.Node, args []*graph.Node) *graph.Node {
			if !args[0].DType().IsFloat() {
				return nil
			}
			return f(n, args)
		}
	}
	lower.OnCPU = map[program.Op]lower.Replacement{
		program.OpAbs: floats(func(_ *program.Node, args []*graph.Node) *graph.Node {
			return graph.Add(graph.Abs(args[0]), scalar(args[0], 0))
		}),
		program.OpSign: floats(func(_ *program.Node, args []*graph.Node) *graph.Node {
			return keepNaN(args[0], graph.Sign(args[0]))
		}),
		program.OpExp:  exp,
		program.OpTanh: tanh,
		program.OpMax:  floats(extreme(graph.Max)),
		program.OpMin:  floats(extreme(graph.Min)),
		program.OpEq: bools(func(x, y *graph.Node) *graph.Node {
			return graph.BitwiseXor(graph.BitwiseXor(x, y), graph.ScalarOne(x.Graph(), dtypes.Uint8))
		}),
		program.OpNe:        bools(graph.BitwiseXor),
		program.OpReduceMax: floats(reduceExtreme(graph.ReduceMax)),
		program.OpReduceMin: floats(reduceExtreme(graph.ReduceMin)),
	}
}

func scalar(x *graph.Node, v float64) *graph.Node {
	return graph.Scalar(x.Graph(), dtypes.Float32, v)
}

// exp squares the exponential of half the argument, which is in the range of the backend's function
// whenever the result is finite and not zero.
func exp(_ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	root := graph.Exp(graph.Mul(x, scalar(x, 0.5)))
	return keepNaN(x, graph.Mul(root, root))
}

// tanh computes −t/(t+2) with t = e^(−2|x|) − 1, which neither cancels nor overflows. If |x| is
// below a quarter of the square root of the precision, the result is x, the nearest float.
func tanh(_ *program.Node, args []*graph.Node) *graph.Node {
	const mantissaBits = 23
	x := args[0]
	magnitude := graph.Abs(x)
	t := graph.Expm1(graph.Mul(magnitude, scalar(x, -2)))
	y := graph.Div(t, graph.Add(t, scalar(x, 2)))
	y = graph.Where(graph.LessThan(x, scalar(x, 0)), y, graph.Neg(y))
	tiny := scalar(x, 1.0/(1<<(mantissaBits/2+2)))
	return graph.Where(graph.LessThan(magnitude, tiny), x, y)
}

// bools applies bitwise operations to bools, which are bytes 0 or 1.
func bools(f func(x, y *graph.Node) *graph.Node) lower.Replacement {
	return func(_ *program.Node, args []*graph.Node) *graph.Node {
		if args[0].DType() != dtypes.Bool {
			return nil
		}
		x, y := graph.Bitcast(args[0], dtypes.Uint8), graph.Bitcast(args[1], dtypes.Uint8)
		return graph.Bitcast(f(x, y), dtypes.Bool)
	}
}

// extreme returns a maximum or minimum that is NaN if either operand is. For such operands the
// backend may return either one.
func extreme(f func(x, y *graph.Node) *graph.Node) lower.Replacement {
	return func(_ *program.Node, args []*graph.Node) *graph.Node {
		out := f(args[0], args[1])
		for _, x := range args {
			if slices.Equal(x.Shape().Dimensions, out.Shape().Dimensions) {
				out = keepNaN(x, out)
			} else { // x is repeated
				out = graph.Add(out, keepNaN(x, scalar(x, 0)))
			}
		}
		return out
	}
}

// keepNaN returns y where x is a number, and NaN where x is NaN. y has the shape of x or is a
// scalar.
func keepNaN(x, y *graph.Node) *graph.Node {
	return graph.Where(graph.LessOrEqual(x, scalar(x, math.Inf(1))), y, x)
}

// reduceExtreme returns a reduction by maximum or minimum that is NaN if any element is. It detects
// NaN in the sum of magnitudes, the cheapest reduction.
func reduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node) lower.Replacement {
	return func(n *program.Node, args []*graph.Node) *graph.Node {
		sum := graph.ReduceSum(graph.Abs(args[0]), n.Attr.Axes...)
		return keepNaN(sum, f(args[0], n.Attr.Axes...))
	}
}
