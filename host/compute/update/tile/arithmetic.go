package tile

import "math"

// What operations do to one element, the definition for all loops. Products are
// converted before they are added, so that no compiler fuses the two.

func unary(op opcode, x float32) float32 {
	switch op {
	case opNeg:
		return math.Float32frombits(math.Float32bits(x) ^ 1<<31)
	case opAbs:
		return math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	case opSign:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		case x == 0:
			return 0
		}
		return x
	case opSqrt:
		return float32(math.Sqrt(float64(x)))
	case opFloor:
		return float32(math.Floor(float64(x)))
	case opRound:
		return float32(math.RoundToEven(float64(x))) + 0
	case opExpm1:
		return float32(math.Expm1(float64(x)))
	case opLog:
		return float32(math.Log(float64(x)))
	case opLog1p:
		return float32(math.Log1p(float64(x)))
	case opIsFinite:
		return truth(x-x == 0)
	}
	panic("tile: not an operation with one operand")
}

func binary(op opcode, x, y float32) float32 {
	switch op {
	case opAdd:
		return x + y
	case opSub:
		return x - y
	case opMul:
		return x * y
	case opDiv:
		return x / y
	case opPow:
		return float32(math.Pow(float64(x), float64(y)))
	case opMax:
		return larger(x, y)
	case opMin:
		return smaller(x, y)
	case opEq:
		return truth(x == y)
	case opNe:
		return truth(x != y)
	case opLt:
		return truth(x < y)
	case opLe:
		return truth(x <= y)
	}
	panic("tile: not an operation with two operands")
}

func truth(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// larger and smaller are NaN if either operand is.
func larger(x, y float32) float32 {
	if x > y || x != x {
		return x
	}
	return y
}

func smaller(x, y float32) float32 {
	if x < y || x != x {
		return x
	}
	return y
}

// clamp keeps NaN.
func clamp(x, lo, hi float32) float32 {
	if x < lo {
		x = lo
	}
	if x > hi {
		x = hi
	}
	return x
}
