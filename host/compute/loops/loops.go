package loops

import "math"

// In each exported function a vectorized loop computes the first elements, and a plain loop the
// rest. Operands are at least as long as dst, which may be one of them.

// Unary computes an operation on every element of a.
func Unary(op Op, dst, a []float32) {
	for i := unary(op, dst, a); i < len(dst); i++ {
		dst[i] = One(op, a[i])
	}
}

// Binary computes an operation on the elements of a and b.
func Binary(op Op, dst, a, b []float32) {
	for i := binary(op, dst, a, b); i < len(dst); i++ {
		dst[i] = Two(op, a[i], b[i])
	}
}

// BinaryS computes an operation on every element of a and on s.
func BinaryS(op Op, dst, a []float32, s float32) {
	for i := binaryS(op, dst, a, s); i < len(dst); i++ {
		dst[i] = Two(op, a[i], s)
	}
}

// SBinary computes an operation on s and every element of b.
func SBinary(op Op, dst []float32, s float32, b []float32) {
	for i := sBinary(op, dst, s, b); i < len(dst); i++ {
		dst[i] = Two(op, s, b[i])
	}
}

// MulMulS computes (a·b)·s. Here and below, every step rounds.
func MulMulS(dst, a, b []float32, s float32) {
	for i := mulMulS(dst, a, b, s); i < len(dst); i++ {
		dst[i] = float32(a[i]*b[i]) * s
	}
}

// MulMul computes (a·b)·c.
func MulMul(dst, a, b, c []float32) {
	for i := mulMul(dst, a, b, c); i < len(dst); i++ {
		dst[i] = float32(a[i]*b[i]) * c[i]
	}
}

// IntoAddS computes s/(a + t).
func IntoAddS(dst, a []float32, s, t float32) {
	for i := intoAddS(dst, a, s, t); i < len(dst); i++ {
		dst[i] = s / (a[i] + t)
	}
}

// SiLUSlope computes the derivative of a·σ(a), given b = σ(a): b·(a·(1 − b) + 1).
func SiLUSlope(dst, a, b []float32) {
	for i := siluSlope(dst, a, b); i < len(dst); i++ {
		dst[i] = b[i] * (float32(a[i]*(1-b[i])) + 1)
	}
}

// LinAdd computes a·s + b·t.
func LinAdd(dst, a []float32, s float32, b []float32, t float32) {
	for i := linAdd(dst, a, s, b, t); i < len(dst); i++ {
		dst[i] = float32(a[i]*s) + float32(b[i]*t)
	}
}

// LinSub computes a·s − b·t.
func LinSub(dst, a []float32, s float32, b []float32, t float32) { LinAdd(dst, a, s, b, -t) }

// LinMul computes a·s + (b·c)·t.
func LinMul(dst, a []float32, s float32, b, c []float32, t float32) {
	for i := linMul(dst, a, s, b, c, t); i < len(dst); i++ {
		dst[i] = float32(a[i]*s) + float32(float32(b[i]*c[i])*t)
	}
}

// SqrtLin computes √a·s + t.
func SqrtLin(dst, a []float32, s, t float32) {
	for i := sqrtLin(dst, a, s, t); i < len(dst); i++ {
		dst[i] = float32(float32(math.Sqrt(float64(a[i])))*s) + t
	}
}

// ExpLin computes exp(a·scale − down), rounding after each operation.
func ExpLin(dst, a []float32, scale, down float32) {
	for i := expLin(dst, a, scale, down); i < len(dst); i++ {
		dst[i] = exp(float32(a[i]*scale) - down)
	}
}

// Clamp applies [Clamp1] to every element.
func Clamp(dst, a []float32, lo, hi float32) {
	for i := clamp(dst, a, lo, hi); i < len(dst); i++ {
		dst[i] = Clamp1(a[i], lo, hi)
	}
}

// Select applies [Select1] to every element of c and of a and b; s is used if a is nil, and t if b
// is nil.
func Select(dst, c, a []float32, s float32, b []float32, t float32) {
	for i := choose(dst, c, a, s, b, t); i < len(dst); i++ {
		x, y := s, t
		if a != nil {
			x = a[i]
		}
		if b != nil {
			y = b[i]
		}
		dst[i] = Select1(c[i], x, y)
	}
}

// Small is the largest magnitude that RoundSmall takes.
const Small = 1 << 21

// RoundSmall is [Round] for magnitudes up to [Small], and for NaN.
func RoundSmall(dst, a []float32) { RoundMulS(dst, a, 1) }

// RoundMulS is [RoundSmall], multiplied by s.
func RoundMulS(dst, a []float32, s float32) {
	for i := roundMulS(dst, a, s); i < len(dst); i++ {
		dst[i] = (float32(a[i]+shifter) - shifter) * s
	}
}

// Near reports where |a − b| ≤ s.
func Near(dst, a, b []float32, s float32) {
	for i := near(dst, a, b, s); i < len(dst); i++ {
		dst[i] = boolFloat(One(Abs, a[i]-b[i]) <= s)
	}
}

// Fill sets every element to s.
func Fill(dst []float32, s float32) {
	for i := fill(dst, s); i < len(dst); i++ {
		dst[i] = s
	}
}
