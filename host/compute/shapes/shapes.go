// Package shapes describes tensors on devices: their element types and dimensions.
package shapes

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/halffloat"
)

// DType is the type of a tensor's elements.
type DType uint8

// The types of elements.
const (
	Invalid DType = iota
	Bool
	Int8
	Uint8
	Int32
	Uint32
	Float16
	BFloat16
	Float32
	Float64
)

// Half is a number in IEEE 754 binary16, given by its bits, and BFloat one in bfloat16.
type (
	Half   uint16
	BFloat uint16
)

// ToBFloat rounds v to bfloat16, ties to even.
func ToBFloat(v float32) BFloat { return BFloat(halffloat.ToBFloat16(v)) }

// Float32 returns the value of a number.
func (v BFloat) Float32() float32 { return halffloat.FromBFloat16(uint16(v)) }

// Element is a Go type of elements.
type Element interface {
	bool | int8 | uint8 | int32 | uint32 | Half | BFloat | float32 | float64
}

// types describes each type of elements.
var types = [...]struct {
	name, mlir string
	of         reflect.Type
}{
	Bool:     {"bool", "i1", reflect.TypeFor[bool]()},
	Int8:     {"int8", "i8", reflect.TypeFor[int8]()},
	Uint8:    {"uint8", "ui8", reflect.TypeFor[uint8]()},
	Int32:    {"int32", "i32", reflect.TypeFor[int32]()},
	Uint32:   {"uint32", "ui32", reflect.TypeFor[uint32]()},
	Float16:  {"float16", "f16", reflect.TypeFor[Half]()},
	BFloat16: {"bfloat16", "bf16", reflect.TypeFor[BFloat]()},
	Float32:  {"float32", "f32", reflect.TypeFor[float32]()},
	Float64:  {"float64", "f64", reflect.TypeFor[float64]()},
}

// Of returns the type of elements that are of Go type T.
func Of[T Element]() DType {
	t := reflect.TypeFor[T]()
	for i, d := range types {
		if d.of == t {
			return DType(i)
		}
	}
	return Invalid
}

// String returns the name of the type, such as "float32".
func (d DType) String() string {
	if d == Invalid || int(d) >= len(types) {
		return fmt.Sprintf("DType(%d)", int(d))
	}
	return types[d].name
}

// MLIR returns the name of the type in MLIR, such as "f32".
func (d DType) MLIR() string { return types[d].mlir }

// GoType returns the Go type of elements.
func (d DType) GoType() reflect.Type { return types[d].of }

// Size returns the number of bytes of an element.
func (d DType) Size() int { return int(types[d].of.Size()) }

// IsFloat reports whether elements are floating-point numbers.
func (d DType) IsFloat() bool { return d >= Float16 }

// A Shape is the type of a tensor. Without dimensions it is a scalar.
type Shape struct {
	DType      DType
	Dimensions []int
}

// Make returns a shape.
func Make(dtype DType, dims ...int) Shape { return Shape{dtype, slices.Clone(dims)} }

// Rank returns the number of dimensions.
func (s Shape) Rank() int { return len(s.Dimensions) }

// IsScalar reports whether the shape has no dimensions.
func (s Shape) IsScalar() bool { return len(s.Dimensions) == 0 }

// Axis returns the number of an axis. Negative ones are counted from the last, which is −1.
func (s Shape) Axis(i int) int {
	if i < 0 {
		return i + s.Rank()
	}
	return i
}

// Dim returns a dimension. Negative axes are counted from the last, as by [Shape.Axis].
func (s Shape) Dim(axis int) int { return s.Dimensions[s.Axis(axis)] }

// Size returns the number of elements.
func (s Shape) Size() int {
	size := 1
	for _, d := range s.Dimensions {
		size *= d
	}
	return size
}

// ByteSize returns the number of bytes of all elements.
func (s Shape) ByteSize() int64 { return int64(s.Size()) * int64(s.DType.Size()) }

// Equal reports whether two shapes have the same type and dimensions.
func (s Shape) Equal(other Shape) bool {
	return s.DType == other.DType && slices.Equal(s.Dimensions, other.Dimensions)
}

// Clone returns a copy.
func (s Shape) Clone() Shape { return Make(s.DType, s.Dimensions...) }

// String returns the shape, such as "float32[2,3]".
func (s Shape) String() string {
	if s.IsScalar() {
		return s.DType.String()
	}
	return s.DType.String() + strings.ReplaceAll(fmt.Sprint(s.Dimensions), " ", ",")
}
