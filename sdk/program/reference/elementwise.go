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

func (m *machine) unary(n *program.Node, x Tensor) Tensor {
	out := Tensor{Type: n.Type}
	switch {
	case n.Op == program.OpIsFinite:
		out.Ints = m.ints.take(len(x.Floats))
		for i, v := range x.Floats {
			out.Ints[i] = truth(!math.IsNaN(v) && !math.IsInf(v, 0))
		}
	case n.Type.DType == program.Float:
		f := floatUnary[n.Op]
		out.Floats = m.floats.take(len(x.Floats))
		for i, v := range x.Floats {
			out.Floats[i] = f(v)
		}
	default:
		f := intUnary[n.Op]
		out.Ints = m.ints.take(len(x.Ints))
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

func (m *machine) binary(n *program.Node, x, y Tensor) Tensor {
	out := Tensor{Type: n.Type}
	size := int(n.Type.Size())
	info, _ := n.Op.Info()
	compares, floats := info.Class == program.ClassCompare, x.Type.DType == program.Float
	if compares || !floats {
		out.Ints = m.ints.take(size)
	} else {
		out.Floats = m.floats.take(size)
	}
	shape := n.Type.Shape
	count, length := rows(shape, x.Type.Shape, y.Type.Shape)
	if floats {
		xs, ys := repeat(&m.floats, x.Floats, x.Type.Shape, shape, length), repeat(&m.floats, y.Floats, y.Type.Shape, shape, length)
		for i := range count {
			if compares {
				compare(n.Op, part(out.Ints, i, count), xs.at(i, length), ys.at(i, length))
			} else {
				binaryRow(n.Op, part(out.Floats, i, count), xs.at(i, length), ys.at(i, length))
			}
		}
		return out
	}
	xs, ys := repeat(&m.ints, x.Ints, x.Type.Shape, shape, length), repeat(&m.ints, y.Ints, y.Type.Shape, shape, length)
	f := intBinary[n.Op]
	for i := range count {
		to, a, b := part(out.Ints, i, count), xs.at(i, length), ys.at(i, length)
		if compares {
			compare(n.Op, to, a, b)
			continue
		}
		for k, v := range a {
			to[k] = wrap(n.Type.DType, f(v, b[k]))
		}
	}
	return out
}

// binaryRow writes the arithmetic of refresh programs out, which a call for each element
// would slow down.
func binaryRow(op program.Op, out, x, y []float64) {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
	case program.OpAdd:
		for i, v := range x {
			out[i] = v + y[i]
		}
	case program.OpSub:
		for i, v := range x {
			out[i] = v - y[i]
		}
	case program.OpMul:
		for i, v := range x {
			out[i] = v * y[i]
		}
	default:
		f := floatBinary[op]
		for i, v := range x {
			out[i] = f(v, y[i])
		}
	}
}

func compare[T float64 | int64](op program.Op, out []int64, x, y []T) {
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
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func (m *machine) elementwise(n *program.Node, args []Tensor) Tensor {
	switch n.Op {
	case program.OpClamp:
		return m.clamp(args[0], args[1].Floats[0], args[2].Floats[0])
	case program.OpSelect:
		if n.Type.DType == program.Float {
			return Tensor{Type: n.Type, Floats: choose(m, &m.floats, n, args, args[1].Floats, args[2].Floats)}
		}
		return Tensor{Type: n.Type, Ints: choose(m, &m.ints, n, args, args[1].Ints, args[2].Ints)}
	case program.OpBitcast:
		return bitcast(args[0], n.Type)
	default:
		return m.convert(args[0], n.Type)
	}
}

// clamp keeps NaN, one of the results that the table allows.
func (m *machine) clamp(x Tensor, lo, hi float64) Tensor {
	out := Tensor{Type: x.Type, Floats: m.floats.take(len(x.Floats))}
	for i, v := range x.Floats {
		out.Floats[i] = min(max(v, lo), hi)
	}
	return out
}

// choose is a select between x and y, the elements of the second and the third operand.
func choose[T any](m *machine, p *pool[T], n *program.Node, args []Tensor, x, y []T) []T {
	shape := n.Type.Shape
	out := p.take(int(n.Type.Size()))
	count, length := rows(shape, args[0].Type.Shape, args[1].Type.Shape, args[2].Type.Shape)
	cond := repeat(&m.ints, args[0].Ints, args[0].Type.Shape, shape, length)
	xs, ys := repeat(p, x, args[1].Type.Shape, shape, length), repeat(p, y, args[2].Type.Shape, shape, length)
	for i := range count {
		to, a, b := part(out, i, count), xs.at(i, length), ys.at(i, length)
		for k, c := range cond.at(i, length) {
			if c != 0 {
				to[k] = a[k]
			} else {
				to[k] = b[k]
			}
		}
	}
	return out
}
