//go:build goexperiment.simd

package tile

import "simd"

// Vectorized loops of operations that choose between numbers. They compare and choose rather than use
// the processor's maximum, whose result for NaN and zeros depends on the order in
// which the compiler puts the operands.

func clampAll(dst, a []float32, lo, hi float32) {
	width, i := simd.Float32s{}.Len(), 0
	low, high := simd.BroadcastFloat32s(lo), simd.BroadcastFloat32s(hi)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		x = low.IfElse(x.Less(low), x)
		high.IfElse(x.Greater(high), x).Store(dst[i:])
	}
	plainClamp(dst[i:], a[i:], lo, hi)
}

func choose(dst, c, a, b []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero := simd.BroadcastFloat32s(0)
	for ; i+width <= len(dst); i += width {
		taken := simd.LoadFloat32s(c[i:]).NotEqual(zero)
		simd.LoadFloat32s(a[i:]).IfElse(taken, simd.LoadFloat32s(b[i:])).Store(dst[i:])
	}
	plainSelect(dst[i:], c[i:], a[i:], b[i:])
}

// unaryAll vectorizes what processors have; functions of package math go element by
// element.
func unaryAll(op opcode, dst, a []float32) {
	switch op {
	case opSqrt:
		sqrt(dst, a)
	case opNeg:
		neg(dst, a)
	case opAbs:
		abs(dst, a)
	case opSign:
		sign(dst, a)
	case opRound:
		round(dst, a)
	case opIsFinite:
		isFinite(dst, a)
	default:
		plainUnary(op, dst, a)
	}
}

func sqrt(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Sqrt().Store(dst[i:])
	}
	plainUnary(opSqrt, dst[i:], a[i:])
}

// neg flips the sign of zeros too.
func neg(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	minus := simd.BroadcastFloat32s(-1)
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Mul(minus).Store(dst[i:])
	}
	plainUnary(opNeg, dst[i:], a[i:])
}

func abs(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Abs().Store(dst[i:])
	}
	plainUnary(opAbs, dst[i:], a[i:])
}

func sign(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one, minus := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1), simd.BroadcastFloat32s(-1)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		y := one.IfElse(x.Greater(zero), minus.IfElse(x.Less(zero), zero))
		x.IfElse(x.NotEqual(x), y).Store(dst[i:])
	}
	plainUnary(opSign, dst[i:], a[i:])
}

// round adds a number to the magnitude, above which the floats are the integers, and
// subtracts it; what is as large is an integer already. Zeros get the positive sign.
func round(dst, a []float32) {
	const integers = 1 << 23
	width, i := simd.Float32s{}.Len(), 0
	zero, shift := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(integers)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		y := x.Abs().Add(shift).Sub(shift)
		y = zero.Sub(y).IfElse(x.Less(zero), y)
		y.IfElse(x.Abs().Less(shift), x).Store(dst[i:])
	}
	plainUnary(opRound, dst[i:], a[i:])
}

func isFinite(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		one.IfElse(x.Sub(x).Equal(zero), zero).Store(dst[i:])
	}
	plainUnary(opIsFinite, dst[i:], a[i:])
}

// binaryAll is for operations without a loop of their own in the interpreter.
func binaryAll(op opcode, dst, a, b []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1)
	if op == opPow {
		plainBinary(op, dst, a, b)
		return
	}
	for ; i+width <= len(dst); i += width {
		x, y := simd.LoadFloat32s(a[i:]), simd.LoadFloat32s(b[i:])
		switch op {
		case opMax:
			y = x.IfElse(x.Greater(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case opMin:
			y = x.IfElse(x.Less(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case opEq:
			y = one.IfElse(x.Equal(y), zero)
		case opNe:
			y = one.IfElse(x.NotEqual(y), zero)
		case opLt:
			y = one.IfElse(x.Less(y), zero)
		case opLe:
			y = one.IfElse(x.LessEqual(y), zero)
		}
		y.Store(dst[i:])
	}
	plainBinary(op, dst[i:], a[i:], b[i:])
}
