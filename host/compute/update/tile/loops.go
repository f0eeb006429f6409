package tile

import "math"

// Loops over elements in plain Go. The vectorized loops use them for the elements that do
// not fill a vector. Operands are at least as long as dst, which may be one of them.

func plainAdd(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func plainSub(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func plainMul(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func plainDiv(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func plainAddS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] + s
	}
}

func plainFromS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = s - a[i]
	}
}

func plainMulS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] * s
	}
}

func plainDivS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] / s
	}
}

func plainIntoS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = s / a[i]
	}
}

func plainMulMulS(dst, a, b []float32, s float32) {
	for i := range dst {
		dst[i] = float32(a[i]*b[i]) * s
	}
}

func plainLinAdd(dst, a []float32, s float32, b []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) + float32(b[i]*t)
	}
}

func plainLinSub(dst, a []float32, s float32, b []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) - float32(b[i]*t)
	}
}

func plainLinMul(dst, a []float32, s float32, b, c []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) + float32(float32(b[i]*c[i])*t)
	}
}

func plainSqrtLin(dst, a []float32, s, t float32) {
	for i := range dst {
		dst[i] = float32(float32(math.Sqrt(float64(a[i])))*s) + t
	}
}

func plainClamp(dst, a []float32, lo, hi float32) {
	for i := range dst {
		dst[i] = clamp(a[i], lo, hi)
	}
}

func plainSelect(dst, c, a, b []float32) {
	for i := range dst {
		if c[i] != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

func plainUnary(op opcode, dst, a []float32) {
	for i := range dst {
		dst[i] = unary(op, a[i])
	}
}

func plainBinary(op opcode, dst, a, b []float32) {
	for i := range dst {
		dst[i] = binary(op, a[i], b[i])
	}
}

func fill(dst []float32, s float32) {
	for i := range dst {
		dst[i] = s
	}
}
