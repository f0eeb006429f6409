package program

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DType is the element type of a value.
type DType uint8

// The element types. Float is the type of computation: IEEE binary32 on a
// device and binary64 in the oracle; its bit pattern ([OpBitcast]) is always
// that of binary32. Int and Uint are 32 bits wide and wrap around.
const (
	Invalid DType = iota
	Float
	Int
	Uint
	Bool
)

var dtypeNames = [...]string{"invalid", "float", "int", "uint", "bool"}

// String returns the name used in the text form: float, int, uint or bool.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return "dtype(" + strconv.Itoa(int(d)) + ")"
}

// Valid reports whether d is one of the four element types.
func (d DType) Valid() bool { return d >= Float && d <= Bool }

// Type is the element type and static shape of a value. A scalar has an empty
// shape. Every axis has at least one element.
type Type struct {
	DType DType
	Shape []int
}

// FloatType returns the type of a float value of the given shape; without
// dimensions, that of a scalar.
func FloatType(shape ...int) Type { return Type{Float, shape} }

// Rank is the number of axes, 0 for a scalar.
func (t Type) Rank() int { return len(t.Shape) }

// IsScalar reports whether the value has no axes.
func (t Type) IsScalar() bool { return len(t.Shape) == 0 }

// Size is the number of elements: the product of the dimensions, 1 for a
// scalar. It saturates at MaxSize+1 instead of overflowing.
func (t Type) Size() int64 {
	size := int64(1)
	for _, d := range t.Shape {
		if d <= 0 {
			return 0
		}
		if int64(d) > MaxSize || size > MaxSize/int64(d) {
			return MaxSize + 1
		}
		size *= int64(d)
	}
	return size
}

// clone returns a type with a shape of its own, so that callers cannot change it.
func (t Type) clone() Type { return Type{t.DType, slices.Clone(t.Shape)} }

// Equal reports whether both types have the same element type and shape.
func (t Type) Equal(o Type) bool { return t.DType == o.DType && slices.Equal(t.Shape, o.Shape) }

// String writes the type as in the text form, for example float[2,3] or bool.
func (t Type) String() string {
	if len(t.Shape) == 0 {
		return t.DType.String()
	}
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = strconv.Itoa(d)
	}
	return t.DType.String() + "[" + strings.Join(dims, ",") + "]"
}

// MaxSize is the largest number of elements a value may have, and MaxRank the
// largest number of axes. They bound what any program can ask for; a host
// tightens them by [Limits].
const (
	MaxSize = 1<<31 - 1
	MaxRank = 8
)

// check tells what is wrong with a type on its own.
func (t Type) check() error {
	if !t.DType.Valid() {
		return fmt.Errorf("element type %s does not exist: use float, int, uint or bool", t.DType)
	}
	if len(t.Shape) > MaxRank {
		return fmt.Errorf("%d axes: at most %d are allowed", len(t.Shape), MaxRank)
	}
	for i, d := range t.Shape {
		if d < 1 {
			return fmt.Errorf("axis %d has %d elements: every axis needs at least 1", i, d)
		}
	}
	if t.Size() > MaxSize {
		return fmt.Errorf("%s has more than %d elements", t, MaxSize)
	}
	return nil
}
