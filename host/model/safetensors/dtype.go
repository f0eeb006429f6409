package safetensors

import (
	"fmt"
	"math"
)

// DType is the type of a tensor's elements, as spelled in the format.
type DType string

// The element types of the format. Only those with a Go counterpart can be converted (see
// Values); the others are handled as raw bytes.
const (
	F4         DType = "F4"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	Bool       DType = "BOOL"
	U8         DType = "U8"
	I8         DType = "I8"
	F8E4M3     DType = "F8_E4M3"
	F8E5M2     DType = "F8_E5M2"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	U16        DType = "U16"
	I16        DType = "I16"
	F16        DType = "F16"
	BF16       DType = "BF16"
	U32        DType = "U32"
	I32        DType = "I32"
	F32        DType = "F32"
	U64        DType = "U64"
	I64        DType = "I64"
	F64        DType = "F64"
	C64        DType = "C64" // a complex number of two float32
)

// Bits returns the number of bits in one element, or 0 for an unknown type.
func (d DType) Bits() int {
	switch d {
	case F4:
		return 4
	case F6E2M3, F6E3M2:
		return 6
	case Bool, U8, I8, F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ:
		return 8
	case U16, I16, F16, BF16:
		return 16
	case U32, I32, F32:
		return 32
	case U64, I64, F64, C64:
		return 64
	}
	return 0
}

// size is the number of bytes of n elements, which are packed without gaps. They must end
// where a byte ends.
func (d DType) size(n int) (int64, error) {
	if d.Bits() == 0 {
		return 0, fmt.Errorf("unknown element type %q", d)
	}
	if n > math.MaxInt/d.Bits() {
		return 0, fmt.Errorf("too many elements of %d bits: %d", d.Bits(), n)
	}
	total := n * d.Bits()
	if total%8 != 0 {
		return 0, fmt.Errorf("%d elements of %d bits are no whole number of bytes", n, d.Bits())
	}
	return int64(total / 8), nil
}
