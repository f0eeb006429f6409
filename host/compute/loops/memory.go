package loops

import (
	"github.com/cage-qat/cage/internal/halffloat"
)

// FromBFloat16 converts bfloat16 bits to float32. a must be at least as long as dst.
func FromBFloat16(dst []float32, a []uint16) {
	for i := fromBFloat16(dst, a[:len(dst)]); i < len(dst); i++ {
		dst[i] = wide(a[i])
	}
}

// wide converts the bits of a bfloat16 number to float32.
func wide(x uint16) float32 { return halffloat.FromBFloat16(x) }

// ToBFloat16 rounds to the nearest bfloat16, ties to even. NaN stays NaN.
func ToBFloat16(dst []uint16, a []float32) {
	for i := toBFloat16(dst, a[:len(dst)]); i < len(dst); i++ {
		dst[i] = short(a[i])
	}
}

// RoundToBFloat16 rounds to bfloat16 precision, and stores the results as float32.
func RoundToBFloat16(dst, a []float32) {
	for i := roundToBFloat16(dst, a); i < len(dst); i++ {
		dst[i] = wide(short(a[i]))
	}
}

// ToInt8 converts integers from −128 to 127. The results for other numbers are undefined.
func ToInt8(dst []int8, a []float32) {
	for i := toInt8(dst, a[:len(dst)]); i < len(dst); i++ {
		dst[i] = int8(int32(a[i]))
	}
}

// ToUint8 converts integers from 0 to 255. The results for other numbers are undefined.
func ToUint8(dst []uint8, a []float32) {
	for i, x := range a[:len(dst)] {
		dst[i] = uint8(int32(x))
	}
}

// FromBytes converts integers of 8 bits.
func FromBytes[T int8 | uint8](dst []float32, a []T) {
	for i, x := range a[:len(dst)] {
		dst[i] = float32(x)
	}
}

// FromBools converts false to 0 and true to 1.
func FromBools(dst []float32, a []bool) {
	for i := fromBools(dst, a[:len(dst)]); i < len(dst); i++ {
		dst[i] = boolFloat(a[i])
	}
}

// ToBools converts 0 to false and other numbers to true.
func ToBools(dst []bool, a []float32) {
	for i := toBools(dst, a[:len(dst)]); i < len(dst); i++ {
		dst[i] = a[i] != 0
	}
}

// Flags are eight bools, the first in the lowest bit.
type Flags uint8

// flagFloats has the bits of each byte as floats.
var flagFloats = func() (table [256][8]float32) {
	for i := range table {
		for j := range table[i] {
			table[i][j] = float32(i >> j & 1)
		}
	}
	return table
}()

// FromFlags converts false to 0 and true to 1, for a multiple of eight.
func FromFlags(dst []float32, a []Flags) {
	for i := range a[:len(dst)/8] {
		*(*[8]float32)(dst[8*i:]) = flagFloats[a[i]]
	}
}

// ToFlags converts 0 to false and other numbers to true, for a multiple of eight.
func ToFlags(dst []Flags, a []float32) {
	for i := toFlags(dst, a); i < len(a)/8; i++ {
		dst[i] = 0
		for j, x := range a[8*i : 8*i+8] {
			if x != 0 {
				dst[i] |= 1 << j
			}
		}
	}
}

// Spread repeats each element of a the given number of times.
func Spread(dst, a []float32, times int) {
	if times == 1 {
		copy(dst, a)
		return
	}
	for _, x := range a {
		Fill(dst[:times], x)
		dst = dst[times:]
	}
}

func short(x float32) uint16 { return halffloat.ToBFloat16(x) }
