package lower

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/program"
)

// goAbs makes |−0| a 0, which the backend's function without vector instructions does not.
func goAbs(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	y := graph.Abs(args[0])
	if engine.FloatLanes() > 1 {
		return y
	}
	return graph.Add(y, l.scalar(0))
}

func goSign(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	y := graph.Sign(args[0])
	if l.rangeOf(n.Args[0]).nan {
		y = l.keepNaN(args[0], y)
	}
	return y
}

// goExp halves the argument, which keeps that of the backend's function in its
// range for all results that are finite and not zero.
func goExp(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	root := graph.Exp(graph.Mul(x, l.scalar(0.5)))
	return l.keepNaN(x, graph.Mul(root, root))
}

// goTanh is −t/(t+2) with t = e^(−2|x|) − 1, which cancels nowhere and does not
// overflow. Below a quarter of the root of the precision, x is the nearest value.
func goTanh(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	magnitude := graph.Abs(x)
	t := graph.Expm1(graph.Mul(magnitude, l.scalar(-2)))
	y := graph.Div(t, graph.Add(t, l.scalar(2)))
	y = graph.Where(graph.LessThan(x, l.scalar(0)), y, graph.Neg(y))
	tiny := l.scalar(1 / float64(int64(1)<<(l.float.mantissa/2+2)))
	return graph.Where(graph.LessThan(magnitude, tiny), x, y)
}

// goRound rounds numbers that are known to be small by a shift of the binary
// point, in two vectorized steps. Zeros have the positive sign on either way.
func goRound(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if most := l.float.exact(); l.rangeOf(n.Args[0]).within(-most, most) {
		shifter := l.scalar(l.float.shifter())
		return graph.Sub(graph.Add(args[0], shifter), shifter)
	}
	return graph.Add(graph.Round(args[0]), l.scalar(0))
}

// goIsFinite uses that ∞ − ∞ and NaN − NaN are NaN.
func goIsFinite(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	return graph.Equal(graph.Sub(args[0], args[0]), l.scalar(0))
}

// goFromBool is a Where because the backend's conversion branches on every element.
func goFromBool(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	switch n.Type.DType {
	case program.Float:
		return graph.Where(args[0], l.scalar(1), l.scalar(0))
	case program.Int:
		return graph.Where(args[0], constant(l.g, int32(1)), constant(l.g, int32(0)))
	case program.Uint:
		return graph.Where(args[0], constant(l.g, uint32(1)), constant(l.g, uint32(0)))
	}
	return args[0]
}

// bools applies bitwise logic to the bytes that hold the bools, 0 and 1.
func bools(f func(bits []*graph.Node) *graph.Node) rule {
	return func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		bytes := make([]*graph.Node, len(args))
		for i, a := range args {
			bytes[i] = graph.Bitcast(a, dtypes.Uint8)
		}
		return graph.Bitcast(f(bytes), dtypes.Bool)
	}
}

func andBits(x []*graph.Node) *graph.Node { return graph.BitwiseAnd(x[0], x[1]) }
func orBits(x []*graph.Node) *graph.Node  { return graph.BitwiseOr(x[0], x[1]) }
func xorBits(x []*graph.Node) *graph.Node { return graph.BitwiseXor(x[0], x[1]) }
func notBits(x []*graph.Node) *graph.Node {
	return graph.BitwiseXor(x[0], graph.ScalarOne(x[0].Graph(), dtypes.Uint8))
}
func equalBits(x []*graph.Node) *graph.Node { return notBits([]*graph.Node{xorBits(x)}) }
