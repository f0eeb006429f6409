package reference

import (
	"math"

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

func unary(n *program.Node, x Tensor) Tensor {
	out := Tensor{Type: n.Type}
	switch {
	case n.Op == program.OpIsFinite:
		out.Ints = make([]int64, len(x.Floats))
		for i, v := range x.Floats {
			out.Ints[i] = truth(!math.IsNaN(v) && !math.IsInf(v, 0))
		}
	case n.Type.DType == program.Float:
		f := floatUnary[n.Op]
		out.Floats = make([]float64, len(x.Floats))
		for i, v := range x.Floats {
			out.Floats[i] = f(v)
		}
	default:
		f := intUnary[n.Op]
		out.Ints = make([]int64, len(x.Ints))
		for i, v := range x.Ints {
			out.Ints[i] = wrap(n.Type.DType, f(v))
		}
	}
	return out
}

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

// Shift counts outside 0…31 mean nothing; they are reduced so that they cannot panic.
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
	x, y = stretch(x, n.Type.Shape), stretch(y, n.Type.Shape)
	out := Tensor{Type: n.Type}
	if info, _ := n.Op.Info(); info.Class == program.ClassCompare {
		if x.Type.DType == program.Float {
			out.Ints = compare(n.Op, x.Floats, y.Floats)
		} else {
			out.Ints = compare(n.Op, x.Ints, y.Ints)
		}
		return out
	}
	if n.Type.DType == program.Float {
		f := floatBinary[n.Op]
		out.Floats = make([]float64, len(x.Floats))
		for i, v := range x.Floats {
			out.Floats[i] = f(v, y.Floats[i])
		}
		return out
	}
	f := intBinary[n.Op]
	out.Ints = make([]int64, len(x.Ints))
	for i, v := range x.Ints {
		out.Ints[i] = wrap(n.Type.DType, f(v, y.Ints[i]))
	}
	return out
}

func compare[T float64 | int64](op program.Op, x, y []T) []int64 {
	out := make([]int64, len(x))
	for i, a := range x {
		b := y[i]
		switch op {
		case program.OpEq:
			out[i] = truth(a == b)
		case program.OpNe:
			out[i] = truth(a != b)
		case program.OpLt:
			out[i] = truth(a < b)
		case program.OpLe:
			out[i] = truth(a <= b)
		case program.OpGt:
			out[i] = truth(a > b)
		default:
			out[i] = truth(a >= b)
		}
	}
	return out
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func elementwise(n *program.Node, args []Tensor) Tensor {
	switch n.Op {
	case program.OpClamp:
		return clamp(args[0], args[1].Floats[0], args[2].Floats[0])
	case program.OpSelect:
		shape := n.Type.Shape
		cond, x, y := stretch(args[0], shape), stretch(args[1], shape), stretch(args[2], shape)
		if n.Type.DType == program.Float {
			return Tensor{Type: n.Type, Floats: choose(cond.Ints, x.Floats, y.Floats)}
		}
		return Tensor{Type: n.Type, Ints: choose(cond.Ints, x.Ints, y.Ints)}
	case program.OpBitcast:
		return bitcast(args[0], n.Type)
	default:
		return convert(args[0], n.Type)
	}
}

// clamp keeps NaN, one of the results that the table allows.
func clamp(x Tensor, lo, hi float64) Tensor {
	out := Tensor{Type: x.Type, Floats: make([]float64, len(x.Floats))}
	for i, v := range x.Floats {
		out.Floats[i] = min(max(v, lo), hi)
	}
	return out
}

func choose[T any](cond []int64, x, y []T) []T {
	out := make([]T, len(x))
	for i := range out {
		if cond[i] != 0 {
			out[i] = x[i]
		} else {
			out[i] = y[i]
		}
	}
	return out
}
