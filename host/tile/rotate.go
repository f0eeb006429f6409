package tile

import (
	"math"
	"math/bits"
)

// run is the number of elements of a block that are multiplied by their matrix; blocks
// of several runs then take butterflies between the runs. H(ab) = H(a) ⊗ H(b).
const run = 16

// rotate multiplies each block of elements, a power of two of them, by the normalized
// Walsh–Hadamard matrix of natural order. dst may be a.
func rotate(dst, a []float32, block int) {
	h := min(block, run)
	rotateRuns(dst, a, h)
	for ; 4*h <= block; h *= 4 {
		for at := 0; at < len(dst); at += 4 * h {
			butterflies(dst[at:at+h], dst[at+h:at+2*h], dst[at+2*h:at+3*h], dst[at+3*h:at+4*h])
		}
	}
	for ; h < block; h *= 2 {
		for at := 0; at < len(dst); at += 2 * h {
			butterfly(dst[at:at+h], dst[at+h:at+2*h])
		}
	}
	mulS(dst, dst, float32(1/math.Sqrt(float64(block))))
}

// signs are the rows of the Walsh–Hadamard matrix of order run, whose first rows begin
// with those of the smaller ones.
var signs = func() (rows [run][run]float32) {
	for i := range rows {
		for j := range rows[i] {
			rows[i][j] = 1 - 2*float32(bits.OnesCount(uint(i&j))%2)
		}
	}
	return rows
}()

// plainRotateRuns multiplies runs of size elements by the matrix without its factor.
// Every element is made of four sums of signed terms, in the order of their indices.
func plainRotateRuns(dst, a []float32, size int) {
	var row [run]float32
	for at := 0; at < len(dst); at += size {
		copy(row[:], a[at:at+size])
		for i := range size {
			var sums [4]float32
			for j := range size {
				if j < 4 {
					sums[j] = signs[j][i] * row[j]
				} else {
					sums[j%4] += signs[j][i] * row[j]
				}
			}
			dst[at+i] = (sums[0] + sums[1]) + (sums[2] + sums[3])
		}
	}
}

// plainButterfly replaces x and y by x + y and x − y.
func plainButterfly(x, y []float32) {
	for i := range x {
		x[i], y[i] = x[i]+y[i], x[i]-y[i]
	}
}

// plainButterflies are two steps: w with x and y with z, then w with y and x with z.
func plainButterflies(w, x, y, z []float32) {
	plainButterfly(w, x)
	plainButterfly(y, z)
	plainButterfly(w, y)
	plainButterfly(x, z)
}
