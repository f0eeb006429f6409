package export

import (
	"fmt"
	"math"
)

// packWords packs rows of integers of 2, 4 or 8 bits as compressed-tensors, MLX and Q2_0 do:
// element i of a row, minus low, occupies the bits bits·i … bits·i+bits−1 of the row, counted from
// the least significant bit of its first word. Each row begins with a new word; its last word is
// padded with zeros.
func packWords(codes []int32, columns, bits int, low int32) []int32 {
	perWord := 32 / bits
	out := make([]int32, 0, len(codes)/perWord)
	for row := 0; row < len(codes); row += columns {
		for first := 0; first < columns; first += perWord {
			word := uint32(0)
			for i := range min(perWord, columns-first) {
				word |= uint32(codes[row+first+i]-low) << (bits * i)
			}
			out = append(out, int32(word))
		}
	}
	return out
}

// transposed returns the columns of rows of a length.
func transposed(list []int32, length int) []int32 {
	out := make([]int32, 0, len(list))
	for column := range length {
		for i := column; i < len(list); i += length {
			out = append(out, list[i])
		}
	}
	return out
}

// packE2M1 packs codes 0…15 in pairs, the first of each pair in the low four bits.
func packE2M1(codes []int32) []byte {
	out := make([]byte, len(codes)/2)
	for i, code := range codes {
		out[i/2] |= byte(code) << (i % 2 * 4)
	}
	return out
}

// codeE8M0 returns the code of a scale, which must be a power of two: its exponent plus 127.
func codeE8M0(scale float32) (code byte, err error) {
	fraction, exponent := math.Frexp(float64(scale))
	if fraction != 0.5 || exponent-1 < -127 || exponent-1 > 127 {
		return 0, fmt.Errorf("scale %v is not a power of two from 2^-127 to 2^127", scale)
	}
	return byte(exponent - 1 + 127), nil
}

// e4m3Numbers holds the numbers of E4M3 from 0 to 448, indexed by code.
var e4m3Numbers = func() (list [127]float32) {
	for code := range list {
		exponent, mantissa := code>>3, code&7
		if exponent == 0 {
			list[code] = float32(math.Ldexp(float64(mantissa), -9))
		} else {
			list[code] = float32(math.Ldexp(float64(8+mantissa), exponent-10))
		}
	}
	return list
}()
