// Package safetensors reads and writes files in the safetensors format: named arrays of numbers
// with a small JSON header, readable by every deep-learning framework
// (https://github.com/huggingface/safetensors).
//
// Files written here are complete or absent, are identical for identical content, and carry a
// SHA-256 of each tensor and one of the header, which the reader verifies. Tensors are written and
// read one after the other, in small pieces, so that a file may be larger than memory. The reader
// does not trust the file: the sizes, offsets and names in a header are checked against each other
// and against the file before anything of a claimed size is allocated. Checkpoints in several files
// with an index ([Shards]) are also read and written.
//
// The meaning of the arrays (parameters, optimizer states, step counters) is left to
// host/train/checkpoint.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	mathbits "math/bits"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
)

// Tensor is a named array whose data is produced on demand: from memory, from a file, or
// from a device.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar
	// Write writes the data: the elements in row-major order, each little-endian. An element of
	// whole bytes must not be split between two calls of Write.
	Write func(w io.Writer) error
}

const chunk = 1 << 16

// ErrFormat is wrapped by every error about bytes that are not a well-formed safetensors file.
var ErrFormat = errors.New("malformed safetensors")

// ErrChecksum is wrapped by the error for a file whose content does not match its digests.
var ErrChecksum = errors.New("checksum mismatch")

// Element constrains the Go types that can be elements of a tensor.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

var dtypes = map[reflect.Kind]DType{
	reflect.Uint8: U8, reflect.Int8: I8, reflect.Uint16: U16, reflect.Int16: I16,
	reflect.Uint32: U32, reflect.Int32: I32, reflect.Uint64: U64, reflect.Int64: I64,
	reflect.Float32: F32, reflect.Float64: F64,
}

func dtypeOf[T Element]() DType { return dtypes[reflect.TypeFor[T]().Kind()] }

func bytesOf(d DType) int { return d.Bits() / 8 }

// New returns a tensor of the given values, which must not change until it has been written. It is
// an error if their number is not the product of the shape.
func New[T Element](name string, shape []int, values []T) (Tensor, error) {
	t := Lazy(name, shape, func() ([]T, error) { return values, nil })
	n, err := elements(shape)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	if n != len(values) {
		return Tensor{}, fmt.Errorf("tensor %q: %d values for shape %v, want %d", name, len(values),
			shape, n)
	}
	return t, nil
}

// Lazy returns a tensor that calls a function for its values each time they are needed.
func Lazy[T Element](name string, shape []int, values func() ([]T, error)) Tensor {
	dtype := dtypeOf[T]()
	return Tensor{Name: name, DType: dtype, Shape: slices.Clone(shape),
		Write: func(w io.Writer) error {
			all, err := values()
			if err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
			var data []byte
			for part := range slices.Chunk(all, chunk/bytesOf(dtype)) {
				if data, err = binary.Append(data[:0], binary.LittleEndian, part); err != nil {
					return fmt.Errorf("tensor %q: %w", name, err)
				}
				if _, err := w.Write(data); err != nil {
					return err
				}
			}
			return nil
		}}
}

// Bytes returns the tensor's data.
func (t Tensor) Bytes() ([]byte, error) {
	size, err := t.size()
	if err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, size))
	if err := t.Write(data); err != nil {
		return nil, err
	}
	return data.Bytes(), t.checkSize(int64(data.Len()))
}

// Values returns the tensor's elements as a new slice. It is an error if T is not the Go
// counterpart of the tensor's type: nothing is converted silently.
func Values[T Element](t Tensor) ([]T, error) {
	if want := dtypeOf[T](); t.DType != want {
		return nil, fmt.Errorf("tensor %q is %s, want %s", t.Name, t.DType, want)
	}
	size, err := t.size()
	if err != nil {
		return nil, err
	}
	d := decoder[T]{values: make([]T, 0, size/int64(bytesOf(t.DType))), size: bytesOf(t.DType)}
	if err := t.Write(&d); err != nil {
		return nil, err
	}
	return d.values, t.checkSize(int64(len(d.values) * d.size))
}

// Floats returns the elements of a tensor of type F32, BF16 or F16. Any other type is an error.
func Floats(t Tensor) ([]float32, error) {
	widen := halffloat.FromHalf
	switch t.DType {
	case F32:
		return Values[float32](t)
	case BF16:
		widen = halffloat.FromBFloat16
	case F16:
	default:
		return nil, fmt.Errorf("tensor %q is %s, want F32, BF16 or F16", t.Name, t.DType)
	}
	t.DType = U16 // their bits
	bits, err := Values[uint16](t)
	return lists.Map(bits, widen), err
}

// decoder collects elements from the bytes written to it.
type decoder[T Element] struct {
	values []T
	size   int // of an element
}

func (d *decoder[T]) Write(data []byte) (int, error) {
	n := len(d.values)
	d.values = slices.Grow(d.values, len(data)/d.size)[:n+len(data)/d.size]
	if len(data)%d.size != 0 {
		return 0, fmt.Errorf("%d bytes, want a multiple of %d", len(data), d.size)
	}
	return binary.Decode(data, binary.LittleEndian, d.values[n:])
}

// size returns the number of bytes of the data. It validates a tensor that a caller constructed.
func (t Tensor) size() (int64, error) {
	if t.Name == "" || t.Name == metadataKey {
		return 0, fmt.Errorf("invalid tensor name %q", t.Name)
	}
	n, err := elements(t.Shape)
	if err != nil {
		return 0, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	size, err := t.DType.size(n)
	if err != nil {
		return 0, fmt.Errorf("tensor %q: shape %v: %w", t.Name, t.Shape, err)
	}
	return size, nil
}

func (t Tensor) checkSize(got int64) error {
	if want, err := t.size(); err != nil || got != want {
		return errors.Join(err, fmt.Errorf("tensor %q: %d bytes for shape %v of %s, want %d", t.Name, got,
			t.Shape, t.DType, want))
	}
	return nil
}

const maxRank = 64

// elements returns the number of elements of a shape, which is 1 for a scalar.
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
		high, low := mathbits.Mul64(n, uint64(d))
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
