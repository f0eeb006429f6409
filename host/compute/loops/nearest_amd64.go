//go:build amd64 && goexperiment.simd

package loops

import (
	"math"
	"simd/archsimd"
)

// count counts the bounds below each element, 32 elements at a time; the count for an element that
// is not finite is 0. It returns the number of elements done.
func (s *steps) count(dst []int32, x []float32) int {
	if !hasAVX2 {
		return 0
	}
	n := len(x) &^ 31
	for len(x) >= 32 && len(dst) >= 32 {
		from, to := (*[32]float32)(x), (*[32]int32)(dst)
		a, b := archsimd.LoadFloat32x8(from[0:8]), archsimd.LoadFloat32x8(from[8:16])
		c, d := archsimd.LoadFloat32x8(from[16:24]), archsimd.LoadFloat32x8(from[24:32])
		var i, j, k, l archsimd.Int32x8
		for _, v := range s.above {
			bound := archsimd.BroadcastFloat32x8(v)
			i = i.Sub(a.Greater(bound).ToInt32x8())
			j = j.Sub(b.Greater(bound).ToInt32x8())
			k = k.Sub(c.Greater(bound).ToInt32x8())
			l = l.Sub(d.Greater(bound).ToInt32x8())
		}
		finite(a, i).Store(to[0:8])
		finite(b, j).Store(to[8:16])
		finite(c, k).Store(to[16:24])
		finite(d, l).Store(to[24:32])
		x, dst = x[32:], dst[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func finite(x archsimd.Float32x8, count archsimd.Int32x8) archsimd.Int32x8 {
	return count.Masked(x.Sub(x).Equal(archsimd.Float32x8{}))
}

// findBlocks finds the nearest rows for 4 rows of x at a time. It returns the number of rows done.
func (p *panels) findBlocks(dst []int32, x []float32) int {
	if !hasAVX2 {
		return 0
	}
	d, n, groups := p.d, len(dst)&^3, len(p.data)/(panelRows*(p.d+1))
	columns := make([]float32, 4*d) // the elements of 4 rows, interleaved
	for row := 0; row < n; row += 4 {
		for r := range 4 {
			for k, v := range x[(row+r)*d : (row+r+1)*d] {
				columns[4*k+r] = v
			}
		}
		var least [32]float32
		var at [32]int32
		for i := range least {
			least[i] = float32(math.Inf(1))
		}
		nearest4(&columns[0], &p.data[0], groups, d, &least, &at)
		for r := range 4 {
			dst[row+r] = firstLeast(least[8*r:8*r+8], at[8*r:8*r+8])
		}
	}
	return n
}

// nearest4 compares 4 rows of x with all groups of a table. For each row of x, least and at hold 8
// lanes, which are updated: the least sum among the table rows that the lane has seen, and the half
// of a group, counted from 0, in which it first occurred.
//
//go:noescape
func nearest4(columns, data *float32, groups, d int, least *[32]float32, at *[32]int32)

// firstLeast returns the index of the row with the least sum, the first such index on ties.
func firstLeast(sums []float32, halves []int32) int32 {
	index, sum := halves[0]*8, sums[0]
	for lane := 1; lane < 8; lane++ {
		if i := halves[lane]*8 + int32(lane); sums[lane] < sum || sums[lane] == sum && i < index {
			index, sum = i, sums[lane]
		}
	}
	return index
}
