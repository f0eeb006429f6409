package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/cage-qat/cage/internal/halffloat"
)

const (
	magic     = "GGUF"
	version   = 3  // written; 2 is also read
	alignment = 32 // of tensors, in bytes: the default of the format
	maxRank   = 4  // number of axes that llama.cpp supports
)

// Type is the type of a tensor's elements, by its number in the format.
type Type uint32

// The types of tensors that this package writes, reads and decodes.
const (
	F32   Type = 0
	F16   Type = 1
	Q4_0  Type = 2  // 4-bit signed integers, with a scale per block of 32
	Q4_1  Type = 3  // 4-bit integers, with a scale and a minimum per block of 32
	Q5_0  Type = 6  // 5-bit signed integers, with a scale per block of 32
	Q5_1  Type = 7  // 5-bit integers, with a scale and a minimum per block of 32
	Q8_0  Type = 8  // 8-bit signed integers, with a scale per block of 32
	BF16  Type = 30 // the upper half of F32
	TQ1_0 Type = 34 // −1, 0 and 1, five in a byte, with a scale per block of 256
	TQ2_0 Type = 35 // the same, four in a byte
	MXFP4 Type = 39 // E2M1, with a power-of-two scale per block of 32
	NVFP4 Type = 40 // E2M1, with an E4M3 scale per 16 elements, and one for the tensor in a second one
	Q1_0  Type = 41 // −1 and 1, with a scale per block of 128
	Q2_0  Type = 42 // 2-bit integers from −1 to 2, with a scale per block of 64
)

var layouts = map[Type]struct {
	name            string
	elements, bytes int
}{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q8_0: {"Q8_0", 32, 34}, MXFP4: {"MXFP4", 32, 17},
	TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66}, NVFP4: {"NVFP4", 64, 36},
	Q1_0: {"Q1_0", 128, 18}, Q2_0: {"Q2_0", 64, 18}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
}

// others are the names of further types, for messages.
var others = map[Type]string{9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
	13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
	28: "F64", 29: "IQ1_M"}

func (t Type) String() string {
	return cmp.Or(layouts[t].name, others[t], fmt.Sprintf("type %d", uint32(t)))
}

// Block returns the number of elements in a block of the type, 1 for plain floats, and
// its size in bytes. Both are 0 for an unknown type.
func (t Type) Block() (elements, bytes int) {
	l := layouts[t]
	return l.elements, l.bytes
}

func (t Type) size(shape []int) (int64, error) {
	elements, bytes := t.Block()
	if elements == 0 {
		return 0, fmt.Errorf("%s is not supported, want F32, F16, BF16, Q8_0, Q5_0, Q5_1, Q4_0, Q4_1, "+
			"Q2_0, Q1_0, TQ1_0, TQ2_0, MXFP4 or NVFP4: another file of the same model, or its Hugging Face checkpoint", t)
	}
	if len(shape) == 0 || len(shape) > maxRank {
		return 0, fmt.Errorf("%d axes, want 1 to %d", len(shape), maxRank)
	}
	if row := shape[len(shape)-1]; row%elements != 0 {
		return 0, fmt.Errorf("rows of %d elements, want a multiple of %d for %s", row, elements, t)
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

func align(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// levels are the numbers of the codes of MXFP4. llama.cpp reads the code of −0 as 0; its sign lets
// an export have the code again.
var levels = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)),
	-0.5, -1, -1.5, -2, -3, -4, -6}

// Decode returns the float32 numbers that a tensor's data encodes, as llama.cpp computes them.
func Decode(t Type, data []byte) ([]float32, error) {
	elements, bytes := t.Block()
	if elements == 0 || len(data)%bytes != 0 {
		return nil, fmt.Errorf("%d bytes, want a multiple of a block of %s", len(data), t)
	}
	out := make([]float32, 0, len(data)/bytes*elements)
	for ; len(data) > 0; data = data[bytes:] {
		out = decodeBlock(out, t, data[:bytes])
	}
	return out, nil
}

// decodeBlock appends the numbers of one block:
//
//	Q8_0   half d, 32 signed bytes q          d·q
//	Q4_0   half d, 16 bytes of two codes      d·(code − 8)
//	Q4_1   half d, half m, 16 bytes           d·code + m
//	Q5_0   half d, 4 bytes h, 16 bytes        d·(code − 16)
//	Q5_1   half d, half m, 4 bytes h, 16 bytes  d·code + m
//	MXFP4  byte e, 16 bytes                   E2M1(code)·2^(e−127)
//	NVFP4  4 bytes s, 32 bytes of two codes   E2M1(code)·E4M3(s)
//	Q1_0   half d, 16 bytes of eight codes    d·(2·code − 1)
//	Q2_0   half d, 16 bytes of four codes     d·(code − 1)
//	TQ1_0  52 bytes of digits, half d         d·(digit − 1)
//	TQ2_0  64 bytes of four codes, half d     d·(code − 1)
//
// The low four bits of the 16 bytes are the codes of the first half of the block, the high four
// bits of the second; bit i of h is the fifth bit of code i. NVFP4 has four such blocks of 8 bytes,
// each with one of the scales. Q1_0 and Q2_0 have adjacent elements in each byte, the first in the
// lowest bits. TQ2_0 stores two runs of 128
// elements in 32 bytes each, 32 elements in two bits of every byte, the lowest first. TQ1_0 stores
// runs of 160, 80 and 16 elements in 32, 16 and 4 bytes: each byte is number·256/3⁵, rounded up,
// and the number has five digits in base 3 (in the last run four and a 0), one element from every
// fifth (fourth) of the run.
func decodeBlock(out []float32, t Type, b []byte) []float32 {
	switch t {
	case F32:
		return append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case F16:
		return append(out, half(b))
	case BF16:
		return append(out, halffloat.FromBFloat16(binary.LittleEndian.Uint16(b)))
	case Q8_0:
		for _, q := range b[2:] {
			out = append(out, half(b)*float32(int8(q)))
		}
		return out
	case Q4_0:
		return decodeNibbles(out, b[2:], func(code byte) float32 { return half(b) * (float32(code) - 8) })
	case Q4_1:
		// The conversion prevents fusing product and sum, which would round only once.
		return decodeNibbles(out, b[4:], func(code byte) float32 {
			return float32(half(b)*float32(code)) + half(b[2:])
		})
	case Q5_0, Q5_1:
		at, low, minimum := 2, float32(16), float32(0)
		if t == Q5_1 {
			at, low, minimum = 4, 0, half(b[2:])
		}
		high := binary.LittleEndian.Uint32(b[at:])
		for i := range 32 {
			code := b[at+4+i%16]>>(i/16*4)&15 | byte(high>>i&1)<<4
			out = append(out, float32(half(b)*(float32(code)-low))+minimum)
		}
		return out
	case NVFP4:
		for i, s := range b[:4] {
			scale := scaleE4M3(s)
			out = decodeNibbles(out, b[4+8*i:12+8*i],
				func(code byte) float32 { return levels[code] * scale })
		}
		return out
	case Q1_0:
		for i := range 128 {
			out = append(out, half(b)*float32(int(b[2+i/8]>>(i%8)&1)*2-1))
		}
		return out
	case Q2_0:
		for i := range 64 {
			out = append(out, half(b)*float32(int(b[2+i/4]>>(i%4*2)&3)-1))
		}
		return out
	case TQ1_0:
		for _, run := range [][3]int{{0, 32, 5}, {32, 48, 5}, {48, 52, 4}} {
			power := byte(1)
			for range run[2] {
				for _, c := range b[run[0]:run[1]] {
					digit := int(c*power) * 3 >> 8
					out = append(out, half(b[52:])*float32(digit-1))
				}
				power *= 3
			}
		}
		return out
	case TQ2_0:
		for from := 0; from < 64; from += 32 {
			for shift := 0; shift < 8; shift += 2 {
				for _, c := range b[from : from+32] {
					out = append(out, half(b[64:])*float32(int(c>>shift&3)-1))
				}
			}
		}
		return out
	}
	scale := math.Ldexp(1, int(b[0])-127)
	return decodeNibbles(out, b[1:],
		func(code byte) float32 { return float32(float64(levels[code]) * scale) })
}

// scaleE4M3 returns the number of an E4M3 code as llama.cpp reads it: without the sign, and NaN as
// 0.
func scaleE4M3(code byte) float32 {
	exponent, mantissa := int(code>>3&15), int(code&7)
	switch {
	case code == 0x7f:
		return 0
	case exponent > 0:
		exponent, mantissa = exponent-1, mantissa+8
	}
	return float32(math.Ldexp(float64(mantissa), exponent-9))
}

func decodeNibbles(out []float32, codes []byte, value func(code byte) float32) []float32 {
	for _, c := range codes {
		out = append(out, value(c&15))
	}
	for _, c := range codes {
		out = append(out, value(c>>4))
	}
	return out
}

func half(b []byte) float32 { return halffloat.FromHalf(binary.LittleEndian.Uint16(b)) }
