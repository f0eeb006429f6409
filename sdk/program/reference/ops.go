package reference

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// An operation executes a node on its operands.
type operation func(n *program.Node, args []Tensor) (Tensor, error)

// operations implements every operation. It uses the built-in max and min, which return NaN if
// either operand is NaN; math.Max and math.Min do not if the other operand is infinite. Shift
// counts outside 0…31 are undefined; they are reduced modulo 32 so that they cannot panic.
var operations = map[program.Op]operation{
	program.OpConstant:   constant,
	program.OpIota:       iota,
	program.OpRandomBits: randomBits,

	program.OpNeg:   unary(func(x float64) float64 { return -x }, func(x int64) int64 { return -x }),
	program.OpAbs:   unary(math.Abs, func(x int64) int64 { return max(x, -x) }),
	program.OpSign:  unary(sign, func(x int64) int64 { return min(max(x, -1), 1) }),
	program.OpSqrt:  unary(math.Sqrt, nil),
	program.OpExp:   unary(math.Exp, nil),
	program.OpExpm1: unary(math.Expm1, nil),
	program.OpLog:   unary(math.Log, nil),
	program.OpLog1p: unary(math.Log1p, nil),
	program.OpTanh:  unary(math.Tanh, nil),
	program.OpFloor: unary(math.Floor, nil),
	program.OpRound: unary(math.RoundToEven, nil),
	program.OpLogb:  unary(math.Logb, nil),
	program.OpIsFinite: func(n *program.Node, args []Tensor) (Tensor, error) {
		return Tensor{Type: n.Type, Ints: each(args[0].Floats, func(v float64) int64 { return truth(finite(v)) })}, nil
	},
	program.OpNot: unary(nil, func(x int64) int64 { return ^x }),

	program.OpAdd:   binary(add[float64], add[int64]),
	program.OpSub:   binary(func(x, y float64) float64 { return x - y }, func(x, y int64) int64 { return x - y }),
	program.OpMul:   binary(func(x, y float64) float64 { return x * y }, func(x, y int64) int64 { return x * y }),
	program.OpDiv:   binary(func(x, y float64) float64 { return x / y }, nil),
	program.OpPow:   binary(math.Pow, nil),
	program.OpMax:   binary(larger[float64], larger[int64]),
	program.OpMin:   binary(smaller[float64], smaller[int64]),
	program.OpLdexp: binary(ldexp, nil),
	program.OpAnd:   binary(nil, func(x, y int64) int64 { return x & y }),
	program.OpOr:    binary(nil, func(x, y int64) int64 { return x | y }),
	program.OpXor:   binary(nil, func(x, y int64) int64 { return x ^ y }),
	program.OpShl:   binary(nil, func(x, y int64) int64 { return x << (y & 31) }),
	program.OpShr:   binary(nil, func(x, y int64) int64 { return x >> (y & 31) }),
	program.OpClamp: clamp,

	program.OpEq: comparison(func(x, y float64) bool { return x == y }, func(x, y int64) bool { return x == y }),
	program.OpNe: comparison(func(x, y float64) bool { return x != y }, func(x, y int64) bool { return x != y }),
	program.OpLt: comparison(func(x, y float64) bool { return x < y }, func(x, y int64) bool { return x < y }),
	program.OpLe: comparison(func(x, y float64) bool { return x <= y }, func(x, y int64) bool { return x <= y }),
	program.OpGt: comparison(func(x, y float64) bool { return x > y }, func(x, y int64) bool { return x > y }),
	program.OpGe: comparison(func(x, y float64) bool { return x >= y }, func(x, y int64) bool { return x >= y }),

	program.OpSelect:  selected,
	program.OpConvert: convert,
	program.OpBitcast: bitcast,

	program.OpReshape: func(n *program.Node, args []Tensor) (Tensor, error) {
		return Tensor{Type: n.Type, Floats: args[0].Floats, Ints: args[0].Ints}, nil
	},
	program.OpTranspose: func(n *program.Node, args []Tensor) (Tensor, error) { return transpose(args[0], n.Attr.Axes), nil },
	program.OpBroadcast: func(n *program.Node, args []Tensor) (Tensor, error) {
		return broadcast(args[0], n.Type.Shape, n.Attr.Axes), nil
	},
	program.OpSlice:       slice,
	program.OpConcatenate: concatenate,

	program.OpReduceSum: reduction(add[float64], add[int64]),
	program.OpReduceMax: reduction(larger[float64], larger[int64]),
	program.OpReduceMin: reduction(smaller[float64], smaller[int64]),

	program.OpDot:      dot,
	program.OpHadamard: func(n *program.Node, args []Tensor) (Tensor, error) { return hadamard(args[0], n.Attr.Block), nil },

	program.OpStopGradient: func(_ *program.Node, args []Tensor) (Tensor, error) { return args[0], nil },

	program.OpQR:          ofMatrices(qr),
	program.OpEighValues:  ofMatrices(func(a []float64, n int, _ []float64) ([]float64, error) { return eigh(a, n, false) }),
	program.OpEighVectors: ofMatrices(func(a []float64, n int, _ []float64) ([]float64, error) { return eigh(a, n, true) }),
	program.OpSortColumns: ofMatrices(sortColumns),

	program.OpNearest:        nearest,
	program.OpLookup:         lookup,
	program.OpScatterAdd:     scatterAdd,
	program.OpTopK:           topK,
	program.OpOrderStatistic: orderStatistic,
}

func unary(floats func(float64) float64, ints func(int64) int64) operation {
	return func(n *program.Node, args []Tensor) (Tensor, error) {
		if n.Type.DType == program.Float {
			return Tensor{Type: n.Type, Floats: each(args[0].Floats, floats)}, nil
		}
		return Tensor{Type: n.Type, Ints: each(args[0].Ints, func(v int64) int64 { return wrap(n.Type.DType, ints(v)) })}, nil
	}
}

func binary(floats func(x, y float64) float64, ints func(x, y int64) int64) operation {
	return func(n *program.Node, args []Tensor) (Tensor, error) {
		x, y := spread(args[0], n.Type.Shape), spread(args[1], n.Type.Shape)
		if n.Type.DType == program.Float {
			return Tensor{Type: n.Type, Floats: pairs(x.Floats, y.Floats, floats)}, nil
		}
		return Tensor{Type: n.Type, Ints: pairs(x.Ints, y.Ints, func(a, b int64) int64 { return wrap(n.Type.DType, ints(a, b)) })}, nil
	}
}

func comparison(floats func(x, y float64) bool, ints func(x, y int64) bool) operation {
	return func(n *program.Node, args []Tensor) (Tensor, error) {
		x, y := spread(args[0], n.Type.Shape), spread(args[1], n.Type.Shape)
		if x.Type.DType == program.Float {
			return Tensor{Type: n.Type, Ints: pairs(x.Floats, y.Floats, func(a, b float64) int64 { return truth(floats(a, b)) })}, nil
		}
		return Tensor{Type: n.Type, Ints: pairs(x.Ints, y.Ints, func(a, b int64) int64 { return truth(ints(a, b)) })}, nil
	}
}

func add[T float64 | int64](x, y T) T     { return x + y }
func larger[T float64 | int64](x, y T) T  { return max(x, y) }
func smaller[T float64 | int64](x, y T) T { return min(x, y) }

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

// pairs applies f to the elements of two lists of the same length; a list of one element is
// repeated.
func pairs[A, B any](x, y []A, f func(a, b A) B) []B {
	out := make([]B, max(len(x), len(y)))
	dx, dy := step(x), step(y)
	for i := range out {
		out[i] = f(x[i*dx], y[i*dy])
	}
	return out
}

// step returns the stride between the elements of an operand: 0 if a single element is broadcast.
func step[T any](x []T) int { return min(1, len(x)-1) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func ldexp(x, n float64) float64 {
	if math.IsNaN(n) {
		return n
	}
	const most = 4096 // any result beyond is 0 or infinite
	return math.Ldexp(x, int(min(max(n, -most), most)))
}

// spread broadcasts an operand of an elementwise operation to the shape of the result, along
// the axes of size 1. A tensor of one element is returned unchanged.
func spread(x Tensor, shape []int) Tensor {
	if x.Len() == 1 || slices.Equal(shape, x.Type.Shape) {
		return x
	}
	return broadcast(x, shape, program.OtherAxes(x.Type.Rank()))
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// clamp keeps NaN, one of the results that the table allows.
func clamp(n *program.Node, args []Tensor) (Tensor, error) {
	lo, hi := args[1].Floats[0], args[2].Floats[0]
	return Tensor{Type: n.Type, Floats: each(args[0].Floats, func(v float64) float64 { return min(max(v, lo), hi) })}, nil
}

func selected(n *program.Node, args []Tensor) (Tensor, error) {
	cond, x, y := spread(args[0], n.Type.Shape), spread(args[1], n.Type.Shape), spread(args[2], n.Type.Shape)
	return Tensor{Type: n.Type, Floats: choose(cond.Ints, x.Floats, y.Floats), Ints: choose(cond.Ints, x.Ints, y.Ints)}, nil
}

// choose returns x where cond is true and y elsewhere.
func choose[T any](cond []int64, x, y []T) []T {
	if x == nil {
		return nil
	}
	out := make([]T, max(len(cond), len(x), len(y)))
	dc, dx, dy := step(cond), step(x), step(y)
	for i := range out {
		if cond[i*dc] != 0 {
			out[i] = x[i*dx]
		} else {
			out[i] = y[i*dy]
		}
	}
	return out
}

func convert(n *program.Node, args []Tensor) (Tensor, error) {
	x, to := args[0], n.Type
	out := Tensor{Type: to}
	from := x.Type.DType
	switch {
	case to.DType == from:
		out.Floats, out.Ints = x.Floats, x.Ints
	case to.DType == program.Float:
		out.Floats = each(x.Ints, func(v int64) float64 { return float64(v) })
	case from == program.Float:
		out.Ints = each(x.Floats, func(v float64) int64 { return integer(v, to.DType) })
	case to.DType == program.Bool:
		out.Ints = each(x.Ints, func(v int64) int64 { return truth(v != 0) })
	default:
		out.Ints = each(x.Ints, func(v int64) int64 { return wrap(to.DType, v) })
	}
	return out, nil
}

// integer rounds toward zero. Out of range the result is undefined; here it
// saturates, and NaN gives 0.
func integer(v float64, to program.DType) int64 {
	switch {
	case to == program.Bool:
		return truth(v != 0)
	case math.IsNaN(v):
		return 0
	case to == program.Int:
		return int64(min(max(v, math.MinInt32), math.MaxInt32))
	default:
		return int64(min(max(v, 0), math.MaxUint32))
	}
}

// bitcast reads the 32 bits of each element as another type.
func bitcast(n *program.Node, args []Tensor) (Tensor, error) {
	x, to := args[0], n.Type
	from := x.Type.DType
	if to.DType == from && from != program.Float {
		return Tensor{Type: to, Ints: x.Ints}, nil
	}
	out := zeros(to)
	for i := range x.Len() {
		var bits uint32
		if from == program.Float {
			bits = math.Float32bits(float32(x.Floats[i]))
		} else {
			bits = uint32(x.Ints[i])
		}
		if to.DType == program.Float {
			out.Floats[i] = float64(math.Float32frombits(bits))
		} else {
			out.Ints[i] = wrap(to.DType, int64(bits))
		}
	}
	return out, nil
}
