//go:build goexperiment.simd

package tile

import "simd"

// Vectorized loops. They walk over arrays of one block, for which the compiler needs no bounds
// checks, and leave the elements after the last whole block to the plain loops.

func add(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Add(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainAdd(dst, a, b)
}

func sub(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Sub(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainSub(dst, a, b)
}

func mul(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainMul(dst, a, b)
}

func div(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Div(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainDiv(dst, a, b)
}

func addS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Add(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainAddS(dst, a, s)
}

func fromS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			c.Sub(simd.LoadFloat32s(a0[i:])).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainFromS(dst, a, s)
}

func mulS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainMulS(dst, a, s)
}

func divS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Div(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainDivS(dst, a, s)
}

func intoS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			c.Div(simd.LoadFloat32s(a0[i:])).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainIntoS(dst, a, s)
}

func mulMulS(dst, a, b []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:])).Mul(c).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainMulMulS(dst, a, b, s)
}

func linAdd(dst, a []float32, s float32, b []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(x).Add(simd.LoadFloat32s(b0[i:]).Mul(y)).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainLinAdd(dst, a, s, b, t)
}

func linSub(dst, a []float32, s float32, b []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(x).Sub(simd.LoadFloat32s(b0[i:]).Mul(y)).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainLinSub(dst, a, s, b, t)
}

func linMul(dst, a []float32, s float32, b, c []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block && len(c) >= block {
		dst0, a0, b0, c0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b), (*[block]float32)(c)
		for i := 0; i <= block-width; i += width {
			p := simd.LoadFloat32s(b0[i:]).Mul(simd.LoadFloat32s(c0[i:])).Mul(y)
			simd.LoadFloat32s(a0[i:]).Mul(x).Add(p).Store(dst0[i:])
		}
		dst, a, b, c = dst[block:], a[block:], b[block:], c[block:]
	}
	plainLinMul(dst, a, s, b, c, t)
}

func sqrtLin(dst, a []float32, s, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Sqrt().Mul(x).Add(y).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainSqrtLin(dst, a, s, t)
}

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

// unaryAll vectorizes the operations that processors have; those of package math are
// computed element by element.
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

// round adds 2²³, above which all floats are integers, to the magnitude and subtracts it
// again; larger numbers are integers already. Zeros get the positive sign.
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

// binaryAll computes the operations without a loop of their own.
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

// Vectorized sums: element i of a tile is added in lane i of a block, so that the width
// of the processor's vectors does not matter.

func sum(l *lanes, a []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block {
		a0 := (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			x := simd.LoadFloat32s(a0[i:])
			simd.LoadFloat32s(l[i:]).Add(x).Store(l[i:])
		}
		a = a[block:]
	}
	plainSum(l, a)
}

func sumMul(l *lanes, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block && len(b) >= block {
		a0, b0 := (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			x := simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:]))
			simd.LoadFloat32s(l[i:]).Add(x).Store(l[i:])
		}
		a, b = a[block:], b[block:]
	}
	plainSumMul(l, a, b)
}

func sumDiff(l *lanes, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block && len(b) >= block {
		a0, b0 := (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			e := simd.LoadFloat32s(a0[i:]).Sub(simd.LoadFloat32s(b0[i:]))
			simd.LoadFloat32s(l[i:]).Add(e.Mul(e)).Store(l[i:])
		}
		a, b = a[block:], b[block:]
	}
	plainSumDiff(l, a, b)
}
