//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

func fromBFloat16(dst []float32, a []uint16) {
	if hasAVX512 {
		n := fromBFloat16x512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		for len(dst) >= 8 && len(a) >= 8 {
			archsimd.LoadUint16x8(a).ExtendToUint32().ShiftAllLeft(16).BitsToFloat32().Store(dst)
			dst, a = dst[8:], a[8:]
		}
		archsimd.ClearAVXUpperBits()
	}
	plainFromBFloat16(dst, a)
}

// shortBits are the bits of vectors rounded to bfloat16, in their upper halves.
func shortBits(x archsimd.Float32x8, half, one, quiet archsimd.Uint32x8) archsimd.Uint32x8 {
	bits := x.ToBits()
	rounded := bits.Add(half).Add(bits.ShiftAllRight(16).And(one))
	return bits.Or(quiet).IfElse(x.NotEqual(x), rounded).ShiftAllRight(16)
}

func roundToBFloat16(dst, a []float32) {
	if hasAVX512 {
		n := roundToBFloat16x512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		half, one, quiet := archsimd.BroadcastUint32x8(0x7fff), archsimd.BroadcastUint32x8(1), archsimd.BroadcastUint32x8(1<<22)
		for len(dst) >= 8 && len(a) >= 8 {
			shortBits(archsimd.LoadFloat32x8(a), half, one, quiet).ShiftAllLeft(16).BitsToFloat32().Store(dst)
			dst, a = dst[8:], a[8:]
		}
		archsimd.ClearAVXUpperBits()
	}
	plainRoundToBFloat16(dst, a)
}

func toBFloat16(dst []uint16, a []float32) {
	if hasAVX512 {
		n := toBFloat16x512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		half, one, quiet := archsimd.BroadcastUint32x8(0x7fff), archsimd.BroadcastUint32x8(1), archsimd.BroadcastUint32x8(1<<22)
		for len(dst) >= 8 && len(a) >= 8 {
			rounded := shortBits(archsimd.LoadFloat32x8(a), half, one, quiet)
			rounded.GetLo().BitsToInt32().SaturateToUint16Concat(rounded.GetHi().BitsToInt32()).Store(dst)
			dst, a = dst[8:], a[8:]
		}
		archsimd.ClearAVXUpperBits()
	}
	plainToBFloat16(dst, a)
}

// fromBools loads 16 bools at a time and takes 8 of them.
func fromBools(dst []float32, a []bool) {
	if hasAVX512 {
		n := fromBools512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		bytes := bytesOf(a)
		at := 0
		for ; at+16 <= len(bytes); at += 8 {
			archsimd.LoadUint8x16(bytes[at:]).ExtendLo8ToUint32().BitsToInt32().ConvertToFloat32().Store(dst[at:])
		}
		archsimd.ClearAVXUpperBits()
		dst, a = dst[at:], a[at:]
	}
	plainFromBools(dst, a)
}

// eightBools has the bools of which each byte has the bits.
var eightBools = func() (table [256][8]bool) {
	for i := range table {
		for j := range table[i] {
			table[i][j] = i>>j&1 == 1
		}
	}
	return table
}()

func toBools(dst []bool, a []float32) {
	if hasAVX512 {
		n := toBools512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		var zero archsimd.Float32x8
		for len(dst) >= 8 && len(a) >= 8 {
			*(*[8]bool)(dst) = eightBools[archsimd.LoadFloat32x8(a).NotEqual(zero).ToBits()]
			dst, a = dst[8:], a[8:]
		}
		archsimd.ClearAVXUpperBits()
	}
	plainToBools(dst, a)
}

func toInt8(dst []int8, a []float32) {
	if hasAVX512 {
		n := toInt8x512(dst, a)
		dst, a = dst[n:], a[n:]
	}
	if hasAVX2 {
		first := archsimd.LoadInt8x16([]int8{0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1}) // bytes of 16-bit numbers
		for len(dst) >= 16 && len(a) >= 8 {
			n := archsimd.LoadFloat32x8(a).ConvertToInt32()
			n.GetLo().SaturateToInt16Concat(n.GetHi()).AsInt8x16().PermuteOrZero(first).Store(dst)
			dst, a = dst[8:], a[8:]
		}
		archsimd.ClearAVXUpperBits()
	}
	plainToInt8(dst, a)
}
