package loops

import "math"

// Op is an operation on elements.
type Op uint8

// The operations. [One] and [Two] determine what package program leaves open, such as the sign of a
// zero.
const (
	None Op = iota

	// Operations on two floats.
	Add
	Sub
	Mul
	Div
	Max // NaN if either operand is
	Min // likewise
	Ldexp
	Eq
	Ne
	Lt
	Le

	// Operations on one float.
	Neg
	Abs // 0 for −0
	Sign
	Sqrt
	Floor
	Round // to even; 0 for −0
	Exp
	Tanh
	Logb
	IsFinite

	// Operations on two integers. Names with Int are for signed integers, Uint for unsigned ones,
	// and Bits for both.
	And
	Or
	Xor
	AddBits
	SubBits
	EqBits
	NeBits
	LtInt
	LeInt
	MulBits // the first operation without a vectorized loop
	Shl
	ShrInt
	ShrUint
	MaxInt
	MinInt
	MaxUint
	MinUint
	LtUint
	LeUint

	// Operations on one integer.
	NegBits
	AbsInt
	SignInt
	Not

	// Conversions. Bools need none, because they are stored as floats.
	FloatToInt
	FloatToUint
	IntToFloat
	UintToFloat

	// Count is one more than the last operation.
	Count
)

// One applies an operation to one element. One and Two define the results of all loops.
func One(op Op, x float32) float32 {
	switch op {
	case Neg:
		return math.Float32frombits(math.Float32bits(x) ^ 1<<31)
	case Abs:
		return math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	case Sign:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		case x == 0:
			return 0
		}
		return x
	case Sqrt:
		return float32(math.Sqrt(float64(x)))
	case Floor:
		return float32(math.Floor(float64(x)))
	case Round:
		return float32(math.RoundToEven(float64(x))) + 0
	case Exp:
		return exp(x)
	case Tanh:
		return tanh(x)
	case Logb:
		return logb(x)
	case IsFinite:
		return boolFloat(x-x == 0)
	}
	return oneInteger(op, x)
}

func oneInteger(op Op, x float32) float32 {
	n := int32(math.Float32bits(x))
	switch op {
	case NegBits:
		return fromInt(-n)
	case AbsInt:
		return fromInt(max(n, -n))
	case SignInt:
		return fromInt(min(max(n, -1), 1))
	case Not:
		return fromInt(^n)
	case FloatToInt:
		return fromInt(int32(x))
	case FloatToUint:
		return fromInt(int32(int64(x)))
	case IntToFloat:
		return float32(n)
	case UintToFloat:
		return float32(uint32(n))
	}
	panic("loops: not an operation with one operand")
}

// Two applies an operation to two elements. Products are converted to float32 before they are
// added, so that no compiler fuses the multiplication and the addition.
func Two(op Op, x, y float32) float32 {
	switch op {
	case Add:
		return x + y
	case Sub:
		return x - y
	case Mul:
		return x * y
	case Div:
		return x / y
	case Ldexp:
		return ldexp(x, y)
	case Max:
		if x > y || x != x {
			return x
		}
		return y
	case Min:
		if x < y || x != x {
			return x
		}
		return y
	case Eq:
		return boolFloat(x == y)
	case Ne:
		return boolFloat(x != y)
	case Lt:
		return boolFloat(x < y)
	case Le:
		return boolFloat(x <= y)
	}
	return twoIntegers(op, math.Float32bits(x), math.Float32bits(y))
}

// twoIntegers applies an operation to two integers. Shift counts are taken modulo 32.
func twoIntegers(op Op, x, y uint32) float32 {
	n, m := int32(x), int32(y)
	switch op {
	case AddBits:
		x += y
	case SubBits:
		x -= y
	case MulBits:
		x *= y
	case And:
		x &= y
	case Or:
		x |= y
	case Xor:
		x ^= y
	case Shl:
		x <<= y & 31
	case ShrUint:
		x >>= y & 31
	case ShrInt:
		return fromInt(n >> (y & 31))
	case MaxInt:
		return fromInt(max(n, m))
	case MinInt:
		return fromInt(min(n, m))
	case MaxUint:
		x = max(x, y)
	case MinUint:
		x = min(x, y)
	case EqBits:
		return boolFloat(x == y)
	case NeBits:
		return boolFloat(x != y)
	case LtInt:
		return boolFloat(n < m)
	case LeInt:
		return boolFloat(n <= m)
	case LtUint:
		return boolFloat(x < y)
	case LeUint:
		return boolFloat(x <= y)
	default:
		panic("loops: not an operation with two operands")
	}
	return math.Float32frombits(x)
}

func fromInt(n int32) float32 { return math.Float32frombits(uint32(n)) }

func boolFloat(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// Clamp1 clamps x to [lo, hi]; NaN stays NaN.
func Clamp1(x, lo, hi float32) float32 {
	if x < lo {
		x = lo
	}
	if x > hi {
		x = hi
	}
	return x
}

// Select1 returns y if the condition is not 0, else z.
func Select1(condition, y, z float32) float32 {
	if condition != 0 {
		return y
	}
	return z
}

// logb returns the exponent of x, taken from its bits; subnormal numbers are supported.
func logb(x float32) float32 {
	switch magnitude := math.Float32bits(x) &^ (1 << 31); {
	case magnitude == 0:
		return float32(math.Inf(-1))
	case magnitude >= 0xff<<23: // +Inf or NaN
		return math.Float32frombits(magnitude)
	case magnitude < 1<<23: // exact as a float64, which has a larger range
		return float32(int(math.Float64bits(float64(math.Float32frombits(magnitude)))>>52) - 1023)
	default:
		return float32(int32(magnitude>>23) - 127)
	}
}

// ldexp returns x·2ⁿ, rounded once: float64 holds the product of x with any power of two that
// programs can use. If n is NaN, so is the result.
func ldexp(x, n float32) float32 {
	if n != n {
		return n
	}
	const most = 400
	e := int64(Clamp1(n, -most, most))
	return float32(float64(x) * math.Float64frombits(uint64(e+1023)<<52))
}
