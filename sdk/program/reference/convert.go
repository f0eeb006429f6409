package reference

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// convert gives the same numbers in another element type.
func convert(x Tensor, to program.Type) Tensor {
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

// integer rounds toward zero. What does not fit has no defined result; here it
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
func bitcast(x Tensor, to program.Type) Tensor {
	out := Tensor{Type: to}
	from := x.Type.DType
	if to.DType == from && from != program.Float {
		out.Ints = x.Ints
		return out
	}
	for i := range x.Len() {
		var bits uint32
		if from == program.Float {
			bits = math.Float32bits(float32(x.Floats[i]))
		} else {
			bits = uint32(x.Ints[i])
		}
		if to.DType == program.Float {
			out.Floats = append(out.Floats, float64(math.Float32frombits(bits)))
		} else {
			out.Ints = append(out.Ints, wrap(to.DType, int64(bits)))
		}
	}
	return out
}
