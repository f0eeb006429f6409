package huggingface

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/model/safetensors"
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
