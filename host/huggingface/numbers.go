package huggingface

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/safetensors"
)

// widen decodes elements of a type to float32, all of which it holds exactly.
func widen(dtype safetensors.DType, data []byte, to []float32) error {
	switch dtype {
	case safetensors.F32:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case safetensors.BF16:
		for i := range to {
			to[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	case safetensors.F16:
		for i := range to {
			to[i] = fromHalf(binary.LittleEndian.Uint16(data[2*i:]))
		}
	default:
		return fmt.Errorf("elements of type %s are not read as weights", dtype)
	}
	return nil
}

// narrow appends float32 values as elements of a type, rounded to nearest, ties to even.
func narrow(dtype safetensors.DType, to []byte, values []float32) ([]byte, error) {
	switch dtype {
	case safetensors.F32:
		for _, x := range values {
			to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
		}
	case safetensors.BF16:
		for _, x := range values {
			to = binary.LittleEndian.AppendUint16(to, brain(x))
		}
	case safetensors.F16:
		for _, x := range values {
			to = binary.LittleEndian.AppendUint16(to, half(x))
		}
	default:
		return nil, fmt.Errorf("weights are not written as elements of type %s: want F32, BF16 or F16", dtype)
	}
	return to, nil
}

// brain rounds to the nearest bfloat16, the upper half of a float32, ties to even, and returns its bits.
func brain(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40 // stays NaN when the lower bits go
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16) // a carry out of the mantissa makes the exponent one larger
}

// fromHalf is the value of an IEEE half.
func fromHalf(bits uint16) float32 {
	const infinity = 0x1f
	sign, exponent, mantissa := uint32(bits&0x8000)<<16, uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch exponent {
	case 0: // steps of 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*0x1p-24))
	case infinity:
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}

// half rounds to the nearest IEEE half, ties to even, and returns its bits.
func half(x float32) uint16 {
	sign := uint16(math.Float32bits(x)>>16) & 0x8000
	switch a := math.Abs(float64(x)); {
	case a != a:
		return sign | 0x7e00
	case a >= 65520: // the middle between the largest half and the next
		return sign | 0x7c00
	case a < 0x1p-14: // steps of 2⁻²⁴, up to the smallest normal number, which follows the largest of these
		return sign | uint16(math.RoundToEven(a*0x1p24))
	default:
		// A carry out of the mantissa makes the exponent one larger, as it should.
		bits := math.Float32bits(float32(a)) - (127-15)<<23
		return sign | uint16((bits+0xfff+bits>>13&1)>>13)
	}
}
