package reference

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

var floatUnary = map[program.Op]func(float64) float64{
	program.OpNeg:   func(x float64) float64 { return -x },
	program.OpAbs:   math.Abs,
	program.OpSign:  sign,
	program.OpSqrt:  math.Sqrt,
	program.OpExp:   math.Exp,
	program.OpExpm1: math.Expm1,
	program.OpLog:   math.Log,
	program.OpLog1p: math.Log1p,
	program.OpTanh:  math.Tanh,
	program.OpFloor: math.Floor,
	program.OpRound: math.RoundToEven,
	program.OpLogb:  math.Logb,
}

var intUnary = map[program.Op]func(int64) int64{
	program.OpNeg: func(x int64) int64 { return -x },
	program.OpAbs: func(x int64) int64 { return max(x, -x) },
	program.OpSign: func(x int64) int64 {
		return min(max(x, -1), 1)
	},
	program.OpNot: func(x int64) int64 { return ^x },
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	case x == 0:
		return 0
	}
	return x // NaN
}

// each applies f to all elements.
func each[A, B any](x []A, f func(A) B) []B {
	if x == nil {
		return nil
	}
	out := make([]B, len(x))
	for i, v := range x {
		out[i] = f(v)
	}
	return out
}

// pairs applies f to the elements of two lists of the same length.
func pairs[A, B any](x, y []A, f func(a, b A) B) []B {
	out := make([]B, len(x))
	for i, v := range x {
		out[i] = f(v, y[i])
	}
	return out
}

func unary(n *program.Node, x Tensor) Tensor {
	out := Tensor{Type: n.Type}
	switch {
	case n.Op == program.OpIsFinite:
		out.Ints = each(x.Floats, func(v float64) int64 { return truth(finite(v)) })
	case n.Type.DType == program.Float:
		out.Floats = each(x.Floats, floatUnary[n.Op])
	default:
		f := intUnary[n.Op]
		out.Ints = each(x.Ints, func(v int64) int64 { return wrap(n.Type.DType, f(v)) })
	}
	return out
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// The built-in max and min return NaN if either operand is NaN, which those of
// package math do not when the other is infinite.
var floatBinary = map[program.Op]func(x, y float64) float64{
	program.OpAdd:   func(x, y float64) float64 { return x + y },
	program.OpSub:   func(x, y float64) float64 { return x - y },
	program.OpMul:   func(x, y float64) float64 { return x * y },
	program.OpDiv:   func(x, y float64) float64 { return x / y },
	program.OpPow:   math.Pow,
	program.OpMax:   func(x, y float64) float64 { return max(x, y) },
	program.OpMin:   func(x, y float64) float64 { return min(x, y) },
	program.OpLdexp: ldexp,
}

// Shift counts outside 0…31 have no defined meaning; they are reduced modulo 32 so
// that they cannot panic.
var intBinary = map[program.Op]func(x, y int64) int64{
	program.OpAdd: func(x, y int64) int64 { return x + y },
	program.OpSub: func(x, y int64) int64 { return x - y },
	program.OpMul: func(x, y int64) int64 { return x * y },
	program.OpMax: func(x, y int64) int64 { return max(x, y) },
	program.OpMin: func(x, y int64) int64 { return min(x, y) },
	program.OpAnd: func(x, y int64) int64 { return x & y },
	program.OpOr:  func(x, y int64) int64 { return x | y },
	program.OpXor: func(x, y int64) int64 { return x ^ y },
	program.OpShl: func(x, y int64) int64 { return x << (y & 31) },
	program.OpShr: func(x, y int64) int64 { return x >> (y & 31) },
}

func ldexp(x, n float64) float64 {
	if math.IsNaN(n) {
		return n
	}
	const most = 4096 // any result beyond is 0 or infinite
	return math.Ldexp(x, int(min(max(n, -most), most)))
}

func binary(n *program.Node, x, y Tensor) Tensor {
	out := Tensor{Type: n.Type}
	info, _ := n.Op.Info()
	compares, floats := info.Class == program.ClassCompare, x.Type.DType == program.Float
	x, y = spread(x, n.Type.Shape), spread(y, n.Type.Shape)
	switch {
	case compares && floats:
		out.Ints = pairs(x.Floats, y.Floats, comparison[float64](n.Op))
	case compares:
		out.Ints = pairs(x.Ints, y.Ints, comparison[int64](n.Op))
	case floats:
		out.Floats = pairs(x.Floats, y.Floats, floatBinary[n.Op])
	default:
		f := intBinary[n.Op]
		out.Ints = pairs(x.Ints, y.Ints, func(a, b int64) int64 { return wrap(n.Type.DType, f(a, b)) })
	}
	return out
}

// spread repeats an operand of an elementwise operation to the shape of the result: a
// scalar, or a tensor of the same rank along the axes where it has one element.
func spread(x Tensor, shape []int) Tensor {
	if x.Len() == 1 {
		t := program.Type{DType: x.Type.DType, Shape: shape}
		return Tensor{Type: t, Floats: fill(x.Floats, int(t.Size())), Ints: fill(x.Ints, int(t.Size()))}
	}
	if slices.Equal(shape, x.Type.Shape) {
		return x
	}
	var axes []int
	for i := range x.Type.Shape {
		axes = append(axes, i)
	}
	return broadcast(x, shape, axes)
}

func comparison[T float64 | int64](op program.Op) func(a, b T) int64 {
	switch op {
	case program.OpEq:
		return func(a, b T) int64 { return truth(a == b) }
	case program.OpNe:
		return func(a, b T) int64 { return truth(a != b) }
	case program.OpLt:
		return func(a, b T) int64 { return truth(a < b) }
	case program.OpLe:
		return func(a, b T) int64 { return truth(a <= b) }
	case program.OpGt:
		return func(a, b T) int64 { return truth(a > b) }
	default:
		return func(a, b T) int64 { return truth(a >= b) }
	}
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func elementwise(n *program.Node, args []Tensor) Tensor {
	switch n.Op {
	case program.OpClamp: // keeps NaN, one of the results that the table allows
		lo, hi := args[1].Floats[0], args[2].Floats[0]
		return Tensor{Type: n.Type, Floats: each(args[0].Floats, func(v float64) float64 { return min(max(v, lo), hi) })}
	case program.OpSelect:
		cond, x, y := spread(args[0], n.Type.Shape), spread(args[1], n.Type.Shape), spread(args[2], n.Type.Shape)
		return Tensor{Type: n.Type, Floats: choose(cond.Ints, x.Floats, y.Floats), Ints: choose(cond.Ints, x.Ints, y.Ints)}
	case program.OpBitcast:
		return bitcast(args[0], n.Type)
	default:
		return convert(args[0], n.Type)
	}
}

// choose is x where cond holds and y elsewhere.
func choose[T any](cond []int64, x, y []T) []T {
	out := slices.Clone(y)
	for i, v := range x {
		if cond[i] != 0 {
			out[i] = v
		}
	}
	return out
}
