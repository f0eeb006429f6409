package loops

import "math"

// few is the number of elements for which plain loops are faster than to call others.
const few = 8

// The exported functions clear the upper halves of vector registers when they are done.

// Unary computes an operation on every element of a.
func Unary(op Op, dst, a []float32) {
	if len(dst) < few {
		plainUnary(op, dst, a)
		return
	}
	if hasAVX2 {
		n := unary256(op, dst, a)
		if n == len(dst) {
			return
		}
		dst, a = dst[n:], a[n:]
	}
	unaryAll(op, dst, a)
	done()
}

// Binary computes an operation on the elements of a and b.
func Binary(op Op, dst, a, b []float32) {
	if len(dst) < few {
		plainBinary(op, dst, a, b)
		return
	}
	switch op {
	case Add:
		add(dst, a, b)
	case Sub:
		sub(dst, a, b)
	case Mul:
		mul(dst, a, b)
	case Div:
		div(dst, a, b)
	default:
		binaryAll(op, dst, a, b)
	}
	done()
}

// BinaryS computes an operation on every element of a and on s.
func BinaryS(op Op, dst, a []float32, s float32) {
	if len(dst) < few {
		plainBinaryS(op, dst, a, s)
		return
	}
	switch op {
	case Add:
		addS(dst, a, s)
	case Sub:
		addS(dst, a, -s)
	case Mul:
		mulS(dst, a, s)
	case Div:
		divS(dst, a, s)
	default:
		if hasAVX2 {
			n := binaryS256(op, dst, a, s)
			if n == len(dst) {
				return
			}
			dst, a = dst[n:], a[n:]
		}
		binaryAllS(op, dst, a, s)
	}
	done()
}

// SBinary computes an operation on s and every element of b.
func SBinary(op Op, dst []float32, s float32, b []float32) {
	switch op {
	case Add, Mul, Eq, Ne, AddBits, MulBits, And, Or, Xor, EqBits, NeBits, MaxInt, MinInt, MaxUint, MinUint: // s may stand on either side
		BinaryS(op, dst, b, s)
	case Sub:
		fromS(dst, b, s)
	case Div:
		intoS(dst, b, s)
	default:
		sBinaryAll(op, dst, s, b)
	}
	done()
}

// MulMulS computes (a·b)·s. Here and below, every step rounds.
func MulMulS(dst, a, b []float32, s float32) {
	mulMulS(dst, a, b, s)
	done()
}

// MulMul computes (a·b)·c.
func MulMul(dst, a, b, c []float32) {
	mulMul(dst, a, b, c)
	done()
}

// IntoAddS computes s/(a + t).
func IntoAddS(dst, a []float32, s, t float32) {
	intoAddS(dst, a, s, t)
	done()
}

// SiLUSlope is the slope of a·σ(a), of which b is σ(a): b·(a·(1 − b) + 1).
func SiLUSlope(dst, a, b []float32) {
	siluSlope(dst, a, b)
	done()
}

// LinAdd computes a·s + b·t.
func LinAdd(dst, a []float32, s float32, b []float32, t float32) {
	linAdd(dst, a, s, b, t)
	done()
}

// LinSub computes a·s − b·t.
func LinSub(dst, a []float32, s float32, b []float32, t float32) {
	linSub(dst, a, s, b, t)
	done()
}

// LinMul computes a·s + (b·c)·t.
func LinMul(dst, a []float32, s float32, b, c []float32, t float32) {
	linMul(dst, a, s, b, c, t)
	done()
}

// SqrtLin computes √a·s + t.
func SqrtLin(dst, a []float32, s, t float32) {
	sqrtLin(dst, a, s, t)
	done()
}

// ExpLin is exp(a·scale − down), both operations before the exponential rounded.
func ExpLin(dst, a []float32, scale, down float32) {
	if hasAVX2 {
		n := expLinVectors(dst, a, scale, down)
		dst, a = dst[n:], a[n:]
	}
	expLin(dst, a, scale, down)
	done()
}

// Clamp is [Clamp1] of every element.
func Clamp(dst, a []float32, lo, hi float32) {
	if hasAVX2 {
		n := clamp256(dst, a, lo, hi)
		if n == len(dst) {
			return
		}
		dst, a = dst[n:], a[n:]
	}
	clampAll(dst, a, lo, hi)
	done()
}

// Select is [Select1] of every element of c, a and b.
func Select(dst, c, a, b []float32) {
	choose(dst, c, a, b)
	done()
}

// SelectS is [Select1] of every element of c and a, and of s.
func SelectS(dst, c, a []float32, s float32) {
	if len(dst) < few {
		plainSelectS(dst, c, a, s)
		return
	}
	if hasAVX2 {
		n := selectS256(dst, c, a, s)
		if n == len(dst) {
			return
		}
		dst, c, a = dst[n:], c[n:], a[n:]
	}
	chooseS(dst, c, a, s)
	done()
}

// SSelect is [Select1] of every element of c, of s, and of every element of b.
func SSelect(dst, c []float32, s float32, b []float32) {
	if len(dst) < few {
		plainSSelect(dst, c, s, b)
		return
	}
	sChoose(dst, c, s, b)
	done()
}

// Small limits the magnitudes that RoundSmall takes.
const Small = 1 << 21

// RoundMulS is [RoundSmall], multiplied by s.
func RoundMulS(dst, a []float32, s float32) {
	if hasAVX2 {
		n := roundMulS256(dst, a, s)
		if n == len(dst) {
			return
		}
		dst, a = dst[n:], a[n:]
	}
	roundSmall(dst, a)
	mulS(dst, dst, s)
	done()
}

// Near tells where |a − b| ≤ s.
func Near(dst, a, b []float32, s float32) {
	if hasAVX2 {
		n := near256(dst, a, b, s)
		if n == len(dst) {
			return
		}
		dst, a, b = dst[n:], a[n:], b[n:]
	}
	sub(dst, a, b)
	unaryAll(Abs, dst, dst)
	binaryAllS(Le, dst, dst, s)
	done()
}

// RoundSmall is [Round] for magnitudes up to [Small], and for NaN.
func RoundSmall(dst, a []float32) { RoundMulS(dst, a, 1) }

// SelectSS is [Select1] of every element of c, and of s and t.
func SelectSS(dst, c []float32, s, t float32) {
	chooseSS(dst, c, s, t)
	done()
}

// Fill sets every element to s.
func Fill(dst []float32, s float32) {
	fill(dst, s)
	done()
}

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

func plainMulMul(dst, a, b, c []float32) {
	for i := range dst {
		dst[i] = float32(a[i]*b[i]) * c[i]
	}
}

func plainIntoAddS(dst, a []float32, s, t float32) {
	for i := range dst {
		dst[i] = s / (a[i] + t)
	}
}

func plainSiLUSlope(dst, a, b []float32) {
	for i := range dst {
		dst[i] = b[i] * (float32(a[i]*(1-b[i])) + 1)
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
		dst[i] = Clamp1(a[i], lo, hi)
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

func plainExpLin(dst, a []float32, scale, down float32) {
	for i := range dst {
		dst[i] = exp(float32(a[i]*scale) - down)
	}
}

func plainUnary(op Op, dst, a []float32) {
	for i := range dst {
		dst[i] = One(op, a[i])
	}
}

func plainBinary(op Op, dst, a, b []float32) {
	for i := range dst {
		dst[i] = Two(op, a[i], b[i])
	}
}

func plainFill(dst []float32, s float32) {
	for i := range dst {
		dst[i] = s
	}
}

func plainBinaryS(op Op, dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = Two(op, a[i], s)
	}
}

func plainSBinary(op Op, dst []float32, s float32, b []float32) {
	for i := range dst {
		dst[i] = Two(op, s, b[i])
	}
}

func plainSelectS(dst, c, a []float32, s float32) {
	for i := range dst {
		if c[i] != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = s
		}
	}
}

func plainSSelect(dst, c []float32, s float32, b []float32) {
	for i := range dst {
		if c[i] != 0 {
			dst[i] = s
		} else {
			dst[i] = b[i]
		}
	}
}

// plainRoundSmall: floats near the shifter are whole numbers.
func plainRoundSmall(dst, a []float32) {
	for i := range dst {
		dst[i] = float32(a[i]+shifter) - shifter
	}
}

func plainSelectSS(dst, c []float32, s, t float32) {
	for i := range dst {
		if c[i] != 0 {
			dst[i] = s
		} else {
			dst[i] = t
		}
	}
}
