package reference

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Tensor is an array of numbers in row-major order. A float tensor holds its elements in Floats,
// all others hold them in Ints: an int as its value, a uint as 0 … 2³²−1, a bool as 0 or 1. Tensors
// may share memory: treat them as immutable.
type Tensor struct {
	Type   program.Type
	Floats []float64
	Ints   []int64
}

func zeros(t program.Type) Tensor {
	if t.DType == program.Float {
		return Tensor{Type: t, Floats: make([]float64, t.Size())}
	}
	return Tensor{Type: t, Ints: make([]int64, t.Size())}
}

// Float returns a float scalar.
func Float(v float64) Tensor { return Floats([]float64{v}) }

// Floats returns a float tensor of the given shape, or a scalar if there are no dimensions. The
// data is not copied.
func Floats(data []float64, shape ...int) Tensor {
	return Tensor{Type: program.FloatType(shape...), Floats: data}
}

// Int returns an int scalar.
func Int(v int32) Tensor { return Ints([]int32{v}) }

// Ints returns an int tensor of the given shape.
func Ints(data []int32, shape ...int) Tensor { return widen(program.Int, data, shape) }

// Uint returns a uint scalar.
func Uint(v uint32) Tensor { return Uints([]uint32{v}) }

// Uints returns a uint tensor of the given shape.
func Uints(data []uint32, shape ...int) Tensor { return widen(program.Uint, data, shape) }

// Bool returns a bool scalar.
func Bool(v bool) Tensor { return Bools([]bool{v}) }

// Bools returns a bool tensor of the given shape.
func Bools(data []bool, shape ...int) Tensor {
	return Tensor{Type: program.Type{DType: program.Bool, Shape: shape}, Ints: each(data, truth)}
}

func widen[T int32 | uint32](dtype program.DType, data []T, shape []int) Tensor {
	return Tensor{Type: program.Type{DType: dtype, Shape: shape},
		Ints: each(data, func(v T) int64 { return int64(v) })}
}

// Len returns the number of elements.
func (t Tensor) Len() int { return len(t.Floats) + len(t.Ints) }

// Scalar returns the element of a scalar as a float64; for any other tensor, the first element.
func (t Tensor) Scalar() float64 { return t.Float64s()[0] }

// Float64s returns the elements converted to float64; those of a float tensor are not copied.
func (t Tensor) Float64s() []float64 {
	if t.Type.DType == program.Float {
		return t.Floats
	}
	return each(t.Ints, func(v int64) float64 { return float64(v) })
}

// Bools returns the elements of a bool tensor; for an integer tensor it returns whether each
// element is nonzero.
func (t Tensor) Bools() []bool {
	return each(t.Ints, func(v int64) bool { return v != 0 })
}

// Clone returns a tensor with memory of its own.
func (t Tensor) Clone() Tensor {
	t.Type.Shape = slices.Clone(t.Type.Shape)
	t.Floats = slices.Clone(t.Floats)
	t.Ints = slices.Clone(t.Ints)
	return t
}

// String formats the type and the first elements.
func (t Tensor) String() string {
	const most = 16
	if n := t.Len(); n > most {
		return fmt.Sprintf("%s %v… %d elements", t.Type, t.Float64s()[:most], n)
	}
	return fmt.Sprintf("%s %v", t.Type, t.Float64s())
}

func (t Tensor) check() error {
	size := t.Type.Size()
	if t.Type.DType == program.Float {
		if int64(len(t.Floats)) != size || len(t.Ints) != 0 {
			return fmt.Errorf("got %d floats and %d integers for %s, want %d floats",
				len(t.Floats), len(t.Ints), t.Type, size)
		}
		return nil
	}
	if int64(len(t.Ints)) != size || len(t.Floats) != 0 {
		return fmt.Errorf("got %d integers and %d floats for %s, want %d integers",
			len(t.Ints), len(t.Floats), t.Type, size)
	}
	for i, v := range t.Ints {
		if v != wrap(t.Type.DType, v) {
			return fmt.Errorf("element %d is %d, out of range for %s", i, v, t.Type.DType)
		}
	}
	return nil
}

// Single returns t with its floats rounded to binary32.
func (t Tensor) Single() Tensor {
	t.Floats = each(t.Floats, func(v float64) float64 { return float64(float32(v)) })
	return t
}

// wrap reduces an integer to the range of its type, modulo 2³².
func wrap(dtype program.DType, v int64) int64 {
	switch dtype {
	case program.Int:
		return int64(int32(v))
	case program.Uint:
		return int64(uint32(v))
	default:
		return v & 1
	}
}
