//go:build amd64 && goexperiment.simd

package matmul

import (
	"simd/archsimd"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/halffloat"
)

// A rounding holds the vector constants for rounding float32 bits to bfloat16.
type rounding struct{ half, one, quiet, upper archsimd.Uint32x8 }

func newRounding() rounding {
	b := archsimd.BroadcastUint32x8
	return rounding{b(0x7fff), b(1), b(0x400000), b(0xffff0000)}
}

func (c *rounding) round(x archsimd.Uint32x8) archsimd.Uint32x8 {
	rounded := x.Add(c.half).Add(x.ShiftAllRight(16).And(c.one))
	return x.Or(c.quiet).IfElse(x.BitsToFloat32().IsNaN(), rounded).And(c.upper)
}

func narrow256(dst []uint16, stride int, src []uint32, srcStride, rows, columns int) {
	whole, c := columns&^7, newRounding()
	for r := range rows {
		to, x := dst[r*stride:][:whole], src[r*srcStride:][:whole]
		for len(to) >= 8 && len(x) >= 8 {
			rounded := c.round(archsimd.LoadUint32x8(x)).ShiftAllRight(16)
			rounded.GetLo().BitsToInt32().SaturateToUint16Concat(rounded.GetHi().BitsToInt32()).Store(to)
			to, x = to[8:], x[8:]
		}
	}
	archsimd.ClearAVXUpperBits()
	if whole < columns {
		narrowPortable(dst[whole:], stride, src[whole:], srcStride, rows, columns-whole)
	}
}

// parts reinterprets words as their 8-bit or 16-bit parts, the lowest first.
func parts[T int8 | uint16 | int16](words []uint32) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(words))),
		len(words)*int(4/unsafe.Sizeof(t)))
}

// copyAlong packs adjacent elements whose memory already has the format of words.
func copyAlong[T int8 | uint16](dst []uint32, src []T) {
	to := parts[T](dst)
	clear(to[copy(to, src):])
}

// The packers below are for operands that [packer.straightAlong] and straightAcross cannot pack:
// rows of incomplete panels, and tensors whose elements are not in rows.

func pairsAlong(dst []uint32, src []int8) {
	to := parts[int16](dst)
	for i, x := range src {
		to[i] = int16(x)
	}
	clear(to[len(src):])
}

func pairsAcross(dst []uint32, src *[4][]int8) {
	s0, s1 := src[0][:len(dst)], src[1][:len(dst)]
	for i := range dst {
		dst[i] = uint32(uint16(s0[i])) | uint32(uint16(s1[i]))<<16
	}
}

func halvesOfFloat32s(dst []uint32, src []float32) {
	to := parts[uint16](dst)
	loops.ToBFloat16(to[:len(src)], src)
	clear(to[len(src):])
}

func halvesOfFloat32sAcross(dst []uint32, src *[4][]float32) {
	s0, s1 := src[0][:len(dst)], src[1][:len(dst)]
	for i := range dst {
		dst[i] = uint32(halffloat.ToBFloat16(s0[i])) | uint32(halffloat.ToBFloat16(s1[i]))<<16
	}
}

func halvesAcross(dst []uint32, src *[4][]uint16) {
	s0, s1 := src[0][:len(dst)], src[1][:len(dst)]
	for i := range dst {
		dst[i] = uint32(s0[i]) | uint32(s1[i])<<16
	}
}

// Functions for [helpers].

func shift512(words []uint32) {
	whole := len(words) &^ 15
	if whole > 0 {
		shifted512(&words[0], whole/16)
	}
	for i := range words[whole:] {
		words[whole+i] ^= 0x80808080 // adds 128 to each byte
	}
}

// addColumns512 adds columns with AVX-512. It requires panels of 32 columns.
func addColumns512(sums []int32, panel []uint32) {
	if words := len(panel) / 32; words > 0 {
		columnSums512(&sums[:32][0], &panel[0], words)
	}
}

// finish256 computes the same as [finish.portable], in the same order.
func finish256(f *finish) {
	whole := f.columns &^ 7
	if whole > 0 {
		sums, out := f.sums[:(f.rows-1)*f.sumStride+whole], f.out[:(f.rows-1)*f.outStride+whole]
		finishCodes(f.rows, whole/8, &sums[0], f.sumStride, &out[0], f.outStride,
			&f.corrections[:whole][0], &f.rowScales[:f.rows][0], &f.columnScales[:whole][0])
	}
	if whole < f.columns {
		f.from(whole)
	}
}

var finish256OrShort = orShort(finish256, narrow256)

// finish512 is finish256 with an AVX-512 kernel for panels of 32 columns.
func finish512(f *finish) {
	if f.columns != 32 {
		finish256OrShort(f)
		return
	}
	sums := f.sums[:(f.rows-1)*f.sumStride+32]
	var out unsafe.Pointer
	if reach := (f.rows-1)*f.outStride + 32; f.short != nil {
		out = unsafe.Pointer(unsafe.SliceData(f.short[:reach]))
	} else {
		out = unsafe.Pointer(unsafe.SliceData(f.out[:reach]))
	}
	finishCodes512(f.rows, &sums[0], f.sumStride, out, f.outStride, &f.corrections[:32][0],
		&f.rowScales[:f.rows][0], &f.columnScales[:32][0], f.short != nil)
}
