//go:build amd64 && goexperiment.simd

package loops

import (
	"simd/archsimd"
	"unsafe"
)

// These vectorized loops convert between the formats in memory and floats, with AVX2 or AVX-512.
// They return the number of elements converted.

func fromBFloat16(dst []float32, a []uint16) (i int) {
	for ; hasAVX2 && i <= len(dst)-8; i += 8 {
		archsimd.LoadUint16x8(a[i:]).ExtendToUint32().ShiftAllLeft(16).BitsToFloat32().Store(dst[i:])
	}
	done()
	return i
}

// A rounding holds the vector constants for rounding to bfloat16.
type rounding struct{ half, one, quiet archsimd.Uint32x16 }

func newRounding() rounding {
	all := archsimd.BroadcastUint32x16
	return rounding{all(0x7fff), all(1), all(1 << 22)}
}

func (r rounding) short(x floats16) archsimd.Uint16x16 {
	bits := x.ToBits()
	rounded := bits.Add(r.half).Add(bits.ShiftAllRight(16).And(r.one))
	return bits.Or(r.quiet).IfElse(x.NotEqual(x), rounded).ShiftAllRight(16).TruncToUint16()
}

func toBFloat16(dst []uint16, a []float32) (i int) {
	if hasAVX512 {
		for round := newRounding(); i <= len(dst)-16; i += 16 {
			round.short(get16(a[i:])).Store(dst[i:])
		}
	}
	if !hasAVX2 { // before the constants below, which are vectors
		done()
		return i
	}
	half, one, quiet := archsimd.BroadcastUint32x8(0x7fff), archsimd.BroadcastUint32x8(1),
		archsimd.BroadcastUint32x8(1<<22)
	for ; i <= len(dst)-8; i += 8 {
		x := get(a[i:])
		bits := x.ToBits()
		y := bits.Add(half).Add(bits.ShiftAllRight(16).And(one))
		y = bits.Or(quiet).IfElse(x.NotEqual(x), y).ShiftAllRight(16)
		y.GetLo().BitsToInt32().SaturateToUint16Concat(y.GetHi().BitsToInt32()).Store(dst[i:])
	}
	done()
	return i
}

func bytesOf(a []bool) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(a))), len(a))
}

// fromBools loads 16 bools at a time and converts 8 of them.
func fromBools(dst []float32, a []bool) (i int) {
	for bytes := bytesOf(a); hasAVX2 && i <= len(bytes)-16; i += 8 {
		x := archsimd.LoadUint8x16(bytes[i:]).ExtendLo8ToUint32().BitsToInt32()
		x.ConvertToFloat32().Store(dst[i:])
	}
	done()
	return i
}

// eightBools maps each byte to its bits as bools.
var eightBools = func() (table [256][8]bool) {
	for i := range table {
		for j := range table[i] {
			table[i][j] = i>>j&1 == 1
		}
	}
	return table
}()

func toBools(dst []bool, a []float32) (i int) {
	var zero floats8
	for ; hasAVX2 && i <= len(dst)-8; i += 8 {
		*(*[8]bool)(dst[i:]) = eightBools[get(a[i:]).NotEqual(zero).ToBits()]
	}
	done()
	return i
}

func toFlags(dst []Flags, a []float32) (i int) {
	var zero floats8
	for ; hasAVX2 && i < len(a)/8; i++ {
		dst[i] = Flags(get(a[8*i:]).NotEqual(zero).ToBits())
	}
	done()
	return i
}

func toInt8(dst []int8, a []float32) (i int) {
	for ; hasAVX512 && i <= len(dst)-16; i += 16 {
		get16(a[i:]).ConvertToInt32().SaturateToInt8().Store(dst[i:])
	}
	if !hasAVX2 { // before the constants below, which are vectors
		done()
		return i
	}
	// the low bytes of 16-bit numbers
	first := archsimd.LoadInt8x16([]int8{0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1})
	for ; i <= len(dst)-16; i += 8 {
		n := get(a[i:]).ConvertToInt32()
		n.GetLo().SaturateToInt16Concat(n.GetHi()).AsInt8x16().PermuteOrZero(first).Store(dst[i:])
	}
	done()
	return i
}
