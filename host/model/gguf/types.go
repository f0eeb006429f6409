package gguf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrFormat is wrapped by every error about bytes that are not a well-formed GGUF file.
var ErrFormat = errors.New("malformed GGUF")

const (
	magic     = "GGUF"
	version   = 3
	alignment = 32 // of tensors, where a file does not say another
	// alignmentKey is the entry that says another.
	alignmentKey = "general.alignment"
	// maxRank is the number of axes that llama.cpp supports.
	maxRank = 4
)

// Type is the type of a tensor's elements, with the number that the format gives it.
type Type uint32

// The types of tensors that this package reads.
const (
	F32   Type = 0
	F16   Type = 1
	Q4_0  Type = 2  // 4-bit signed integers, with one scale for 32
	Q4_1  Type = 3  // 4-bit integers, with a scale and a minimum for 32
	Q8_0  Type = 8  // 8-bit signed integers, with one scale for 32
	BF16  Type = 30 // the upper half of F32
	MXFP4 Type = 39 // E2M1, with a power of two as the scale of 32
)

// layouts are the sizes of the blocks of the types.
var layouts = map[Type]struct {
	name            string
	elements, bytes int
}{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q8_0: {"Q8_0", 32, 34}, MXFP4: {"MXFP4", 32, 17},
}

func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns the number of elements in a block of the type, 1 for plain floats, and
// its size in bytes. Both are 0 for an unknown type.
func (t Type) Block() (elements, bytes int) {
	l := layouts[t]
	return l.elements, l.bytes
}

// size returns the bytes of a tensor.
func (t Type) size(shape []int) (int64, error) {
	elements, bytes := t.Block()
	if elements == 0 {
		return 0, fmt.Errorf("%s is not supported", t)
	}
	if len(shape) == 0 || len(shape) > maxRank {
		return 0, fmt.Errorf("%d axes, want 1 to %d", len(shape), maxRank)
	}
	if row := shape[len(shape)-1]; row%elements != 0 {
		return 0, fmt.Errorf("rows of %d elements are no whole number of blocks of %d, as %s has them", row, elements, t)
	}
	n := uint64(1)
	for _, d := range shape {
		if d <= 0 {
			return 0, fmt.Errorf("shape %v has an axis below 1", shape)
		}
		high, low := bits.Mul64(n, uint64(d))
		if high != 0 || low > math.MaxInt64/8 {
			return 0, fmt.Errorf("shape %v has too many elements to count", shape)
		}
		n = low
	}
	return int64(n) / int64(elements) * int64(bytes), nil
}

// An Entry is a named value. Its type is one of these Go types: bool, string, integers
// and floats of a fixed size, and slices of all these.
type Entry struct {
	Key   string
	Value any
}

// aligned is the next multiple of the alignment.
func aligned(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }
