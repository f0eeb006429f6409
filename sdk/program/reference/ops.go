package reference

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

type operation func(n *program.Node, args []Tensor) Tensor

// operations holds the operations, except those defined by a scalar function ([program.Op.Scalar])
// and eigenvalue problems, which may fail.
var operations = map[program.Op]operation{
	program.OpConstant:   constant,
	program.OpIota:       iota,
	program.OpRandomBits: randomBits,

	program.OpClamp:   clamp,
	program.OpSelect:  selected,
	program.OpConvert: convert,
	program.OpBitcast: bitcast,

	program.OpReshape: func(n *program.Node, args []Tensor) Tensor {
		return Tensor{Type: n.Type, Floats: args[0].Floats, Ints: args[0].Ints}
	},
	program.OpTranspose: func(n *program.Node, args []Tensor) Tensor {
		return transpose(args[0], n.Attr.Axes)
	},
	program.OpBroadcast: func(n *program.Node, args []Tensor) Tensor {
		return broadcast(args[0], n.Type.Shape, n.Attr.Axes)
	},
	program.OpSlice:       slice,
	program.OpConcatenate: concatenate,

	program.OpReduceSum: reduction(program.OpAdd),
	program.OpReduceMax: reduction(program.OpMax),
	program.OpReduceMin: reduction(program.OpMin),

	program.OpDot:      dot,
	program.OpHadamard: hadamard,

	program.OpStopGradient: func(_ *program.Node, args []Tensor) Tensor { return args[0] },

	program.OpQR:          ofMatrices(qr),
	program.OpSortColumns: ofMatrices(sortColumns),

	program.OpNearest:        nearest,
	program.OpLookup:         lookup,
	program.OpScatterAdd:     scatterAdd,
	program.OpTopK:           topK,
	program.OpOrderStatistic: orderStatistic,
}

func elementwise(n *program.Node, args []Tensor) Tensor {
	floats, ints := n.Op.Scalar()
	x := spread(args[0], n.Type.Shape)
	y := x
	if len(args) > 1 {
		y = spread(args[1], n.Type.Shape)
	}
	out := Tensor{Type: n.Type}
	switch {
	case x.Type.DType != program.Float:
		out.Ints = pairs(x.Ints, y.Ints, func(a, b int64) int64 { return wrap(n.Type.DType, ints(a, b)) })
	case n.Type.DType != program.Float:
		out.Ints = pairs(x.Floats, y.Floats, func(a, b float64) int64 { return int64(floats(a, b)) })
	default:
		out.Floats = pairs(x.Floats, y.Floats, floats)
	}
	return out
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

// clamp returns NaN for NaN, one of the results that the operation table allows.
func clamp(n *program.Node, args []Tensor) Tensor {
	lo, hi := args[1].Floats[0], args[2].Floats[0]
	clamped := each(args[0].Floats, func(v float64) float64 { return min(max(v, lo), hi) })
	return Tensor{Type: n.Type, Floats: clamped}
}

func selected(n *program.Node, args []Tensor) Tensor {
	shape := n.Type.Shape
	cond, x, y := spread(args[0], shape), spread(args[1], shape), spread(args[2], shape)
	if len(cond.Ints) == 1 && x.Type.Equal(n.Type) && y.Type.Equal(n.Type) {
		if cond.Ints[0] == 0 {
			x = y
		}
		return x
	}
	floats, ints := choose(cond.Ints, x.Floats, y.Floats), choose(cond.Ints, x.Ints, y.Ints)
	return Tensor{Type: n.Type, Floats: floats, Ints: ints}
}

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

func convert(n *program.Node, args []Tensor) Tensor {
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
	return out
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

// bitcast reinterprets the 32 bits of each element as another type.
func bitcast(n *program.Node, args []Tensor) Tensor {
	x, to := args[0], n.Type
	from := x.Type.DType
	if to.DType == from && from != program.Float {
		return Tensor{Type: to, Ints: x.Ints}
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
	return out
}
