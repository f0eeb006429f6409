package loops

import "math"

// run is the largest number of elements that are multiplied by their matrix in one step;
// larger blocks then take butterflies between their runs, as H(ab) = H(a) ⊗ H(b).
const (
	runBits = 4
	run     = 1 << runBits
)

// Rotate multiplies each block of elements, a power of two of them, by the normalized
// Walsh–Hadamard matrix of natural order. dst may be a.
func Rotate(dst, a []float32, block int) {
	h, scale := min(block, run), float32(1/math.Sqrt(float64(block)))
	switch {
	case hasAVX2 && block >= 64:
		h = 64
		rotate64s(dst, a, scale)
	case hasAVX2 && block >= 16:
		rotate16s(dst, a, scale)
	default:
		rotateRuns(dst, a, h, scale)
	}
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
	done()
}

// signs has a row for each bit of a position in a run: 1 where the bit is 0, −1 where it is 1.
var signs = func() (rows [runBits][run]float32) {
	for k := range rows {
		for i := range rows[k] {
			rows[k][i] = 1 - 2*float32(i>>k&1)
		}
	}
	return rows
}()

// plainRotateRuns multiplies runs of size elements by the scale and by the matrix of ±1,
// by butterflies of decreasing distance.
func plainRotateRuns(dst, a []float32, size int, scale float32) {
	plainMulS(dst, a, scale)
	for at := 0; at < len(dst); at += size {
		for h := size / 2; h > 0; h /= 2 {
			for i := 0; i < size; i += 2 * h {
				plainButterfly(dst[at+i:at+i+h], dst[at+i+h:at+i+2*h])
			}
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
