package loops

import "math"

// In each exported function a vectorized loop computes the first elements, and a plain loop
// computes the rest. Operands must be at least as long as dst, which may be one of them.

// ClearUpper clears the upper halves of the vector registers of the thread. While they are in use,
// scalar float operations are a hundred times slower, as after a signal by which the
// runtime preempts a goroutine (docs/upstream). The functions of this package clear them
// themselves.
func ClearUpper() { done() }

// Unary applies an operation to every element of a.
func Unary(op Op, dst, a []float32) {
	for i := unary(op, dst, a); i < len(dst); i++ {
		dst[i] = One(op, a[i])
	}
}

// Binary applies an operation to corresponding elements of a and b.
func Binary(op Op, dst, a, b []float32) {
	for i := binary(op, dst, a, b); i < len(dst); i++ {
		dst[i] = Two(op, a[i], b[i])
	}
}

// BinaryS applies an operation to every element of a, with s as its second operand.
func BinaryS(op Op, dst, a []float32, s float32) {
	for i := binaryS(op, dst, a, s); i < len(dst); i++ {
		dst[i] = Two(op, a[i], s)
	}
}

// SBinary applies an operation to every element of b, with s as its first operand.
func SBinary(op Op, dst []float32, s float32, b []float32) {
	for i := sBinary(op, dst, s, b); i < len(dst); i++ {
		dst[i] = Two(op, s, b[i])
	}
}

// MulMulS computes (a·b)·s. Here and below, each operation rounds.
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

// Select applies [Select1] to corresponding elements of c, a and b. If a is nil it uses s instead,
// and t if b is nil.
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

// Small is the largest magnitude that [RoundSmall] accepts.
const Small = 1 << 21

// RoundSmall is [Round] for magnitudes up to [Small], and for NaN.
func RoundSmall(dst, a []float32) { RoundMulS(dst, a, 1) }

// RoundMulS computes [RoundSmall] and multiplies the result by s.
func RoundMulS(dst, a []float32, s float32) {
	for i := roundMulS(dst, a, s); i < len(dst); i++ {
		rounded := math.Float32bits(float32(a[i]+shifter) - shifter)
		dst[i] = math.Float32frombits(rounded|math.Float32bits(a[i])&(1<<31)) * s // also of −0
	}
}

// Near sets dst to 1 where |a − b| ≤ s, and to 0 elsewhere.
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
