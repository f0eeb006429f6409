package loops

import "math"

// run is the size of the largest block that is transformed in one step. Larger blocks then need
// butterflies between their runs, because H(ab) = H(a) ⊗ H(b).
const run = 16

// Rotate multiplies each block of elements, whose size is a power of two, by the normalized
// Walsh–Hadamard matrix in natural order. dst may be a.
func Rotate(dst, a []float32, block int) {
	h, scale := min(block, run), float32(1/math.Sqrt(float64(block)))
	switch {
	case hasAVX2 && block >= 64:
		h = 64
		rotate64s(dst, a, scale)
	case hasAVX2 && block >= 16:
		rotate16s(dst, a, scale)
	default: // butterflies of decreasing distance
		BinaryS(Mul, dst, a, scale)
		for at := 0; at < len(dst); at += h {
			for distance := h / 2; distance > 0; distance /= 2 {
				for i := at; i < at+h; i += 2 * distance {
					addAndSubtract(dst[i:i+distance], dst[i+distance:i+2*distance])
				}
			}
		}
	}
	for ; 4*h <= block; h *= 4 {
		for at := 0; at < len(dst); at += 4 * h {
			w, x, y, z := dst[at:at+h], dst[at+h:at+2*h], dst[at+2*h:at+3*h], dst[at+3*h:at+4*h]
			n := butterflies(w, x, y, z)
			w, x, y, z = w[n:], x[n:], y[n:], z[n:]
			addAndSubtract(w, x)
			addAndSubtract(y, z)
			addAndSubtract(w, y)
			addAndSubtract(x, z)
		}
	}
	for ; h < block; h *= 2 {
		for at := 0; at < len(dst); at += 2 * h {
			addAndSubtract(dst[at:at+h], dst[at+h:at+2*h])
		}
	}
	done()
}

func addAndSubtract(x, y []float32) {
	for i := butterfly(x, y); i < len(x); i++ {
		x[i], y[i] = x[i]+y[i], x[i]-y[i]
	}
}
