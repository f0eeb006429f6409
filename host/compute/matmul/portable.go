package matmul

import (
	"math"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/halffloat"
)

var portable = &Tier{"portable", portableFloats, portableSingles, portableCodes}

var portableHelpers = &helpers{
	transpose: transposePortable, finish: orShort((*finish).portable, narrowPortable),
	narrow: narrowPortable, prefetch: func(unsafe.Pointer, int, int, int) {},
}

var portableFloats = &format{
	rows: 4, columns: 4, per: 1, cut: &blocksForVectors,
	multiply:  tileKernel(floatsPortable).tileByTile,
	float32s:  packer[float32]{along: roundFloat32s, across: acrossOne(roundFloat32s)},
	bfloat16s: packer[uint16]{along: widenBFloat16s, across: acrossOne(widenBFloat16s)},
	helpers:   portableHelpers,
}

var portableSingles = portableFloats.packing(
	packer[float32]{along: copyFloat32s, across: acrossOne(copyFloat32s)})

var portableCodes = &format{
	integers: true, rows: 4, columns: 4, per: 4, cut: &blocksForVectors,
	multiply: tileKernel(codesPortable).tileByTile,
	int8s:    packer[int8]{along: quadsAlong, across: quadsAcross},
	helpers:  portableHelpers,
}

// acrossOne derives a packer's across function from along, for words of one element.
func acrossOne[T any](along func(dst []uint32, src []T)) func(dst []uint32, src *[4][]T) {
	return func(dst []uint32, src *[4][]T) { along(dst, src[0]) }
}

func narrowPortable(dst []uint16, stride int, src []uint32, srcStride, rows, columns int) {
	for r := range rows {
		for c := range columns {
			dst[r*stride+c] = halffloat.ToBFloat16(math.Float32frombits(src[r*srcStride+c]))
		}
	}
}

func roundFloat32s(dst []uint32, src []float32) {
	loops.RoundToBFloat16(asFloats(dst), src[:len(dst)])
}

func copyFloat32s(dst []uint32, src []float32) { copy(dst, asWords(src[:len(dst)])) }

func widenBFloat16s(dst []uint32, src []uint16) { loops.FromBFloat16(asFloats(dst), src) }

func quadsAlong(dst []uint32, src []int8) {
	for i := range dst {
		var w uint32
		for j, x := range src[4*i : min(4*i+4, len(src))] {
			w |= uint32(uint8(x)) << (8 * j)
		}
		dst[i] = w
	}
}

func quadsAcross(dst []uint32, src *[4][]int8) {
	n := len(dst)
	s0, s1, s2, s3 := src[0][:n], src[1][:n], src[2][:n], src[3][:n]
	for i := range dst {
		low := uint32(uint8(s0[i])) | uint32(uint8(s1[i]))<<8
		dst[i] = low | uint32(uint8(s2[i]))<<16 | uint32(uint8(s3[i]))<<24
	}
}

// floatsPortable rounds every product and every sum. Products of bfloat16 are exact, so the result
// equals that of fused instructions unless a product overflows or underflows float32. The
// conversion to float32 prevents compilers from fusing.
func floatsPortable(words int, a, b, c []uint32, stride int, accumulate bool) {
	left, right := asFloats(a[:4*words]), asFloats(b[:4*words])
	for r := 0; r < 4; r += 2 { // two rows fit into the registers of all processors
		var s0, s1, s2, s3, t0, t1, t2, t3 float32
		for i := 0; i+4 <= len(left) && i+4 <= len(right); i += 4 {
			row := (*[4]float32)(right[i:])
			x, y, b0, b1, b2, b3 := left[i+r], left[i+r+1], row[0], row[1], row[2], row[3]
			s0, t0 = s0+float32(x*b0), t0+float32(y*b0)
			s1, t1 = s1+float32(x*b1), t1+float32(y*b1)
			s2, t2 = s2+float32(x*b2), t2+float32(y*b2)
			s3, t3 = s3+float32(x*b3), t3+float32(y*b3)
		}
		to, next := asFloats(c[r*stride:][:4]), asFloats(c[(r+1)*stride:][:4])
		if accumulate {
			s0, s1, s2, s3 = to[0]+s0, to[1]+s1, to[2]+s2, to[3]+s3
			t0, t1, t2, t3 = next[0]+t0, next[1]+t1, next[2]+t2, next[3]+t3
		}
		to[0], to[1], to[2], to[3] = s0, s1, s2, s3
		next[0], next[1], next[2], next[3] = t0, t1, t2, t3
	}
}

func codesPortable(words int, a, b, c []uint32, stride int, accumulate bool) {
	a, b = a[:4*words], b[:4*words]
	for r := range 4 {
		var s [4]int32
		for i := 0; i+4 <= len(a) && i+4 <= len(b); i += 4 {
			x := a[i+r]
			x0, x1, x2, x3 := int32(int8(x)), int32(int8(x>>8)), int32(int8(x>>16)), int32(int8(x>>24))
			for j, y := range (*[4]uint32)(b[i:]) {
				s[j] += x0*int32(int8(y)) + x1*int32(int8(y>>8)) + x2*int32(int8(y>>16)) + x3*int32(int8(y>>24))
			}
		}
		to := (*[4]uint32)(c[r*stride:])
		for j := range to {
			if accumulate {
				to[j] += uint32(s[j])
			} else {
				to[j] = uint32(s[j])
			}
		}
	}
}

func transposePortable(dst []uint32, stride int, src []uint32, ld, words int) {
	for r := range stride {
		for w, x := range src[r*ld : r*ld+words] {
			dst[w*stride+r] = x
		}
	}
}

// asFloats and asWords reinterpret memory as the other 32-bit type: panels and sums hold either.
func asFloats(x []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func asWords(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
