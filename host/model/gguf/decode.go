package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cage-qat/cage/internal/vecmath"
)

// levels are the numbers of E2M1 by their code.
var levels = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// Decode returns the numbers that the data of a tensor stands for, in float32, as
// llama.cpp computes them.
func Decode(t Type, data []byte) ([]float32, error) {
	elements, bytes := t.Block()
	if elements == 0 || len(data)%bytes != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of blocks of %s", len(data), t)
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
//	MXFP4  byte e, 16 bytes                   E2M1(code)·2^(e−127)
//
// Of 16 bytes with two codes the low four bits are the first half of the block, the high
// ones the second.
func decodeBlock(out []float32, t Type, b []byte) []float32 {
	switch t {
	case F32:
		return append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case F16:
		return append(out, half(b))
	case BF16:
		return append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
	case Q8_0:
		for _, q := range b[2:] {
			out = append(out, half(b)*float32(int8(q)))
		}
		return out
	case Q4_0:
		return decodeNibbles(out, b[2:], func(code byte) float32 { return half(b) * (float32(code) - 8) })
	case Q4_1:
		// The conversion keeps the compiler from fusing product and sum, which would round once.
		return decodeNibbles(out, b[4:], func(code byte) float32 { return float32(half(b)*float32(code)) + half(b[2:]) })
	}
	scale := math.Ldexp(1, int(b[0])-127)
	return decodeNibbles(out, b[1:], func(code byte) float32 { return float32(float64(levels[code]) * scale) })
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

// half is the IEEE binary16 number at the start of b.
func half(b []byte) float32 { return vecmath.FromHalf(binary.LittleEndian.Uint16(b)) }
