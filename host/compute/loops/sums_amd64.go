//go:build amd64 && goexperiment.simd

package loops

import (
	"math"
	"simd/archsimd"
)

// groupSums is GroupSumMul with vectors. The last two numbers of each group are added after the
// vector registers have been cleared.
func groupSums(dst, a, b []float32, size int) {
	var last [64][2]float64
	var zero archsimd.Float32x8
	for len(dst) > 0 {
		n := min(len(dst), len(last))
		for g := range n {
			group := a[g*size : (g+1)*size]
			other := []float32(nil)
			if b != nil {
				other = b[g*size : (g+1)*size]
			}
			switch {
			case size == 16:
				total(&last[g], times(group, other, 0), zero, times(group, other, 8), zero)
			case size == 32:
				total(&last[g], times(group, other, 0), times(group, other, 8), times(group, other, 16),
					times(group, other, 24))
			case b == nil:
				sum64(&last[g], group)
			default:
				sumMul64(&last[g], group, other)
			}
		}
		archsimd.ClearAVXUpperBits()
		for g, l := range last[:n] {
			dst[g] = float32(l[0]+l[1]) + 0 // + 0 makes a zero positive
		}
		dst, a = dst[n:], a[n*size:]
		if b != nil {
			b = b[n*size:]
		}
	}
}

// times returns a[at:at+8], multiplied by b[at:at+8] unless b is nil.
func times(a, b []float32, at int) floats8 {
	if b == nil {
		return get(a[at : at+8])
	}
	return get(a[at : at+8]).Mul(get(b[at : at+8]))
}

// sum64 adds up elements in 64 lanes. Padding with zeros does not change a sum.
func sum64(last *[2]float64, a []float32) {
	var v0, v1, v2, v3, v4, v5, v6, v7 archsimd.Float32x8
	for len(a) > 0 {
		if len(a) < 64 {
			var rest [64]float32
			copy(rest[:], a)
			a = rest[:]
		}
		x := (*[64]float32)(a)
		v0 = v0.Add(archsimd.LoadFloat32x8(x[0:8]))
		v1 = v1.Add(archsimd.LoadFloat32x8(x[8:16]))
		v2 = v2.Add(archsimd.LoadFloat32x8(x[16:24]))
		v3 = v3.Add(archsimd.LoadFloat32x8(x[24:32]))
		v4 = v4.Add(archsimd.LoadFloat32x8(x[32:40]))
		v5 = v5.Add(archsimd.LoadFloat32x8(x[40:48]))
		v6 = v6.Add(archsimd.LoadFloat32x8(x[48:56]))
		v7 = v7.Add(archsimd.LoadFloat32x8(x[56:64]))
		a = a[64:]
	}
	total(last, v0.Add(v4), v1.Add(v5), v2.Add(v6), v3.Add(v7))
}

func sumMul64(last *[2]float64, a, b []float32) {
	var v0, v1, v2, v3, v4, v5, v6, v7 archsimd.Float32x8
	for len(a) > 0 {
		if len(a) < 64 {
			var rest, others [64]float32
			copy(rest[:], a)
			copy(others[:], b)
			a, b = rest[:], others[:]
		}
		x, y := (*[64]float32)(a), (*[64]float32)(b)
		v0 = v0.Add(archsimd.LoadFloat32x8(x[0:8]).Mul(archsimd.LoadFloat32x8(y[0:8])))
		v1 = v1.Add(archsimd.LoadFloat32x8(x[8:16]).Mul(archsimd.LoadFloat32x8(y[8:16])))
		v2 = v2.Add(archsimd.LoadFloat32x8(x[16:24]).Mul(archsimd.LoadFloat32x8(y[16:24])))
		v3 = v3.Add(archsimd.LoadFloat32x8(x[24:32]).Mul(archsimd.LoadFloat32x8(y[24:32])))
		v4 = v4.Add(archsimd.LoadFloat32x8(x[32:40]).Mul(archsimd.LoadFloat32x8(y[32:40])))
		v5 = v5.Add(archsimd.LoadFloat32x8(x[40:48]).Mul(archsimd.LoadFloat32x8(y[40:48])))
		v6 = v6.Add(archsimd.LoadFloat32x8(x[48:56]).Mul(archsimd.LoadFloat32x8(y[48:56])))
		v7 = v7.Add(archsimd.LoadFloat32x8(x[56:64]).Mul(archsimd.LoadFloat32x8(y[56:64])))
		a, b = a[64:], b[64:]
	}
	total(last, v0.Add(v4), v1.Add(v5), v2.Add(v6), v3.Add(v7))
}

// total reduces 32 lanes to 8, and these to two numbers in float64.
func total(last *[2]float64, v0, v1, v2, v3 archsimd.Float32x8) {
	v0 = v0.Add(v2).Add(v1.Add(v3))
	pairs := v0.GetLo().ConvertToFloat64().Add(v0.GetHi().ConvertToFloat64())
	pairs.GetLo().Add(pairs.GetHi()).StoreArray(last)
}

// groupLargest requires groups of at least 8 elements; it may read an element twice.
func groupLargest(dst, a []float32, size int) {
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := get(group).Abs().AsInt32x8()
		for i := 8; i+8 <= size; i += 8 {
			x = x.Max(get(group[i : i+8]).Abs().AsInt32x8())
		}
		x = x.Max(get(group[size-8:]).Abs().AsInt32x8())
		m := x.GetLo().Max(x.GetHi())
		m = m.Max(m.PermuteScalars(2, 3, 0, 1))
		m = m.Max(m.PermuteScalars(1, 0, 3, 2))
		dst[g] = fromInt(m.GetElem(0))
	}
	archsimd.ClearAVXUpperBits()
}

// groupExtreme requires groups of at least 8 elements; it may read an element twice. It detects NaN
// separately, because the processor's maximum may be wrong for NaN.
func groupExtreme(op Op, dst, a []float32, size int) {
	nan := float32(math.NaN())
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := get(group)
		unordered := x.NotEqual(x)
		for i := 8; i < size; i += 8 {
			if i+8 > size {
				i = size - 8
			}
			y := get(group[i : i+8])
			unordered = unordered.Or(y.NotEqual(y))
			if op == Max {
				x = x.Max(y)
			} else {
				x = x.Min(y)
			}
		}
		m := most(op, x.GetLo(), x.GetHi())
		m = most(op, m, m.AsInt32x4().PermuteScalars(2, 3, 0, 1).AsFloat32x4())
		m = most(op, m, m.AsInt32x4().PermuteScalars(1, 0, 3, 2).AsFloat32x4())
		dst[g] = fromInt(m.Add(archsimd.Float32x4{}).AsInt32x4().GetElem(0)) // + 0 makes a zero positive
		if unordered.ToBits() != 0 {
			dst[g] = nan
		}
	}
	archsimd.ClearAVXUpperBits()
}

func most(op Op, x, y archsimd.Float32x4) archsimd.Float32x4 {
	if op == Max {
		return x.Max(y)
	}
	return x.Min(y)
}
