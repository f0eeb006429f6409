// Package safetensors reads and writes files of the safetensors format: named
// arrays of numbers with a small JSON header, readable by every deep-learning
// framework (https://github.com/huggingface/safetensors).
//
// Files written here are complete or absent, the same for the same content, and
// carry a SHA-256 that the reader verifies. The reader takes nothing on trust:
// a header is believed only after its sizes, offsets and names have been checked
// against each other and against the file, and before anything of a size that
// the file claims is allocated.
//
// What the arrays mean (parameters, optimizer states, step counters) is not
// known here; see host/checkpoint.
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// DType is the type of a tensor's elements, in the spelling of the format.
type DType string

// The element types this package moves. Only those with a Go counterpart can be
// converted (see Values); the others travel as raw bytes.
const (
	Bool   DType = "BOOL"
	U8     DType = "U8"
	I8     DType = "I8"
	F8E4M3 DType = "F8_E4M3"
	F8E5M2 DType = "F8_E5M2"
	U16    DType = "U16"
	I16    DType = "I16"
	F16    DType = "F16"
	BF16   DType = "BF16"
	U32    DType = "U32"
	I32    DType = "I32"
	F32    DType = "F32"
	U64    DType = "U64"
	I64    DType = "I64"
	F64    DType = "F64"
)

// Size returns the bytes of one element, or 0 for a type that is not known.
func (d DType) Size() int {
	switch d {
	case Bool, U8, I8, F8E4M3, F8E5M2:
		return 1
	case U16, I16, F16, BF16:
		return 2
	case U32, I32, F32:
		return 4
	case U64, I64, F64:
		return 8
	}
	return 0
}

// Tensor is a named array. Data holds the elements in row-major order, each
// little-endian; its length is the product of Shape times DType.Size().
type Tensor struct {
	Name  string
	DType DType
	Shape []int // empty for a single number
	Data  []byte
}

// ErrFormat is wrapped by every error about bytes that are not a well-formed
// safetensors file.
var ErrFormat = errors.New("malformed safetensors")

// ErrChecksum is wrapped by the error about a file whose content is not what
// its writer hashed.
var ErrChecksum = errors.New("checksum mismatch")

// Element is a Go type with a counterpart among the element types.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

// dtypeOf returns the element type that T is stored as.
func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case uint8:
		return U8
	case int8:
		return I8
	case uint16:
		return U16
	case int16:
		return I16
	case uint32:
		return U32
	case int32:
		return I32
	case uint64:
		return U64
	case int64:
		return I64
	case float32:
		return F32
	}
	return F64
}

// New makes a tensor of the given values, which it copies. It is an error when
// their number is not the product of the shape.
func New[T Element](name string, shape []int, values []T) (Tensor, error) {
	n, err := elements(shape)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	if n != len(values) {
		return Tensor{}, fmt.Errorf("tensor %q: %d values for shape %v, want %d", name, len(values), shape, n)
	}
	dtype := dtypeOf[T]()
	data, err := binary.Append(make([]byte, 0, n*dtype.Size()), binary.LittleEndian, values)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	return Tensor{Name: name, DType: dtype, Shape: slices.Clone(shape), Data: data}, nil
}

// Values returns the tensor's elements as a new slice. It is an error when T is
// not the Go counterpart of the tensor's type: nothing is converted silently.
func Values[T Element](t Tensor) ([]T, error) {
	if want := dtypeOf[T](); t.DType != want {
		return nil, fmt.Errorf("tensor %q is %s, want %s", t.Name, t.DType, want)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	values := make([]T, len(t.Data)/t.DType.Size())
	if _, err := binary.Decode(t.Data, binary.LittleEndian, values); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return values, nil
}

// check reports what is wrong with a tensor that a caller put together.
func (t Tensor) check() error {
	if t.Name == "" || t.Name == metadataKey {
		return fmt.Errorf("tensor name %q cannot be used", t.Name)
	}
	if t.DType.Size() == 0 {
		return fmt.Errorf("tensor %q: unknown element type %q", t.Name, t.DType)
	}
	n, err := elements(t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if len(t.Data)%t.DType.Size() != 0 || len(t.Data)/t.DType.Size() != n {
		return fmt.Errorf("tensor %q: %d bytes for shape %v of %s, want %d elements of %d bytes",
			t.Name, len(t.Data), t.Shape, t.DType, n, t.DType.Size())
	}
	return nil
}

// maxRank bounds the number of axes of a tensor.
const maxRank = 64

// elements is the product of a shape, 1 for the empty one.
func elements(shape []int) (int, error) {
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%d axes, want at most %d", len(shape), maxRank)
	}
	n, empty := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative axis", shape)
		}
		if d == 0 {
			empty = true
			continue
		}
		high, low := bits.Mul64(n, uint64(d))
		if high != 0 || low > math.MaxInt {
			return 0, fmt.Errorf("shape %v has too many elements to count", shape)
		}
		n = low
	}
	if empty {
		return 0, nil
	}
	return int(n), nil
}
