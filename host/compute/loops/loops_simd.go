//go:build goexperiment.simd

package loops

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

func mulMul(dst, a, b, c []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block && len(c) >= block {
		dst0, a0, b0, c0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b), (*[block]float32)(c)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:])).Mul(simd.LoadFloat32s(c0[i:])).Store(dst0[i:])
		}
		dst, a, b, c = dst[block:], a[block:], b[block:], c[block:]
	}
	plainMulMul(dst, a, b, c)
}

func intoAddS(dst, a []float32, s, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			x.Div(simd.LoadFloat32s(a0[i:]).Add(y)).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainIntoAddS(dst, a, s, t)
}

func siluSlope(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	one := simd.BroadcastFloat32s(1)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			y := simd.LoadFloat32s(b0[i:])
			y.Mul(simd.LoadFloat32s(a0[i:]).Mul(one.Sub(y)).Add(one)).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainSiLUSlope(dst, a, b)
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
func unaryAll(op Op, dst, a []float32) {
	switch op {
	case Sqrt:
		sqrt(dst, a)
	case Neg:
		neg(dst, a)
	case Abs:
		abs(dst, a)
	case Sign:
		sign(dst, a)
	case Round:
		round(dst, a)
	case IsFinite:
		isFinite(dst, a)
	case Floor:
		floor(dst, a)
	case Exp:
		expLin(dst, a, 1, 0)
	case Tanh:
		tanhs(dst, a)
	case UintToFloat:
		uintToFloat(dst, a)
	default:
		plainUnary(op, dst, a)
	}
}

// uintToFloat adds the two halves of each integer, both exact, so that only their sum is rounded.
func uintToFloat(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	low, shift := simd.BroadcastUint32s(0xffff), simd.BroadcastFloat32s(1<<16)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:]).ToBits()
		upper := x.ShiftAllRight(16).ConvertToInt32().ConvertToFloat32().Mul(shift)
		upper.Add(x.And(low).ConvertToInt32().ConvertToFloat32()).Store(dst[i:])
	}
	plainUnary(UintToFloat, dst[i:], a[i:])
}

func sqrt(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Sqrt().Store(dst[i:])
	}
	plainUnary(Sqrt, dst[i:], a[i:])
}

// neg flips the sign of zeros too.
func neg(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	minus := simd.BroadcastFloat32s(-1)
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Mul(minus).Store(dst[i:])
	}
	plainUnary(Neg, dst[i:], a[i:])
}

func abs(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Abs().Store(dst[i:])
	}
	plainUnary(Abs, dst[i:], a[i:])
}

func sign(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one, minus := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1), simd.BroadcastFloat32s(-1)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		y := one.IfElse(x.Greater(zero), minus.IfElse(x.Less(zero), zero))
		x.IfElse(x.NotEqual(x), y).Store(dst[i:])
	}
	plainUnary(Sign, dst[i:], a[i:])
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
	plainUnary(Round, dst[i:], a[i:])
}

func isFinite(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		one.IfElse(x.Sub(x).Equal(zero), zero).Store(dst[i:])
	}
	plainUnary(IsFinite, dst[i:], a[i:])
}

// floor subtracts 1 from what was rounded up. What is whole stays as it is, −0 among it.
func floor(dst, a []float32) {
	const integers = 1 << 23
	width, i := simd.Float32s{}.Len(), 0
	zero, one, shift := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1), simd.BroadcastFloat32s(integers)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		y := x.Abs().Add(shift).Sub(shift)
		y = zero.Sub(y).IfElse(x.Less(zero), y)
		y = y.Sub(one).IfElse(y.Greater(x), y)
		y = x.IfElse(y.Equal(x), y)
		y.IfElse(x.Abs().Less(shift), x).Store(dst[i:])
	}
	plainUnary(Floor, dst[i:], a[i:])
}

// expLin is exp(a·scale − down) of every element.
func expLin(dst, a []float32, scale, down float32) {
	all := simd.BroadcastFloat32s
	factor, less := all(scale), all(down)
	width, i := simd.Float32s{}.Len(), 0
	// The compiler does not move broadcasts out of the loop.
	log2, upper, lower, one := all(log2e), all(log2Upper), all(log2Lower), all(1)
	p0, p1, p2, p3, p4, p5 := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5)
	bits := simd.BroadcastInt32s(shifterBits)
	low, high, shift, bias := all(expLeast), all(expMost), all(shifter), simd.BroadcastInt32s(127)
	for ; i+width <= len(dst); i += width {
		nan := simd.LoadFloat32s(a[i:]).Mul(factor).Sub(less)
		x := low.IfElse(nan.Less(low), nan)
		x = high.IfElse(x.Greater(high), x)
		shifted := x.Mul(log2).Add(shift)
		n := shifted.Sub(shift)
		r := x.Sub(n.Mul(upper))
		r = r.Sub(n.Mul(lower))
		p := r.Mul(p0).Add(p1)
		p = p.Mul(r).Add(p2)
		p = p.Mul(r).Add(p3)
		p = p.Mul(r).Add(p4)
		p = p.Mul(r).Add(p5)
		y := p.Mul(r.Mul(r)).Add(r).Add(one)
		k := shifted.ToBits().BitsToInt32().Sub(bits)
		half := k.ShiftAllRight(1)
		y = y.Mul(half.Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
		y = y.Mul(k.Sub(half).Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
		nan.IfElse(nan.NotEqual(nan), y).Store(dst[i:])
	}
	plainExpLin(dst[i:], a[i:], scale, down)
}

// tanhs is tanh of every element.
func tanhs(dst, a []float32) {
	all := simd.BroadcastFloat32s
	width := simd.Float32s{}.Len()
	near, zero, one, two := all(tanhNear), all(0), all(1), all(2)
	var far [block]float32
	for len(dst) >= block && len(a) >= block && width <= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			m := simd.LoadFloat32s(a0[i:]).Abs()
			m.Add(m).Store(far[i:])
		}
		expLin(far[:], far[:], 1, 0)
		for i := 0; i <= block-width; i += width {
			x := simd.LoadFloat32s(a0[i:])
			y := one.Sub(two.Div(simd.LoadFloat32s(far[i:]).Add(one)))
			y = zero.Sub(y).IfElse(x.Less(zero), y)
			z := x.Mul(x)
			p := z.Mul(all(tanhP0)).Add(all(tanhP1))
			p = p.Mul(z).Add(all(tanhP2))
			p = p.Mul(z).Add(all(tanhP3))
			p = p.Mul(z).Add(all(tanhP4))
			p = p.Mul(z).Mul(x).Add(x)
			y.IfElse(x.Abs().GreaterEqual(near), p).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainUnary(Tanh, dst, a)
}

func chooseS(dst, c, a []float32, s float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, other := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(s)
	for ; i+width <= len(dst); i += width {
		taken := simd.LoadFloat32s(c[i:]).NotEqual(zero)
		simd.LoadFloat32s(a[i:]).IfElse(taken, other).Store(dst[i:])
	}
	plainSelectS(dst[i:], c[i:], a[i:], s)
}

func sChoose(dst, c []float32, s float32, b []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, x := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(s)
	for ; i+width <= len(dst); i += width {
		x.IfElse(simd.LoadFloat32s(c[i:]).NotEqual(zero), simd.LoadFloat32s(b[i:])).Store(dst[i:])
	}
	plainSSelect(dst[i:], c[i:], s, b[i:])
}

func roundSmall(dst, a []float32) {
	width, i := simd.Float32s{}.Len(), 0
	shift := simd.BroadcastFloat32s(shifter)
	for ; i+width <= len(dst); i += width {
		simd.LoadFloat32s(a[i:]).Add(shift).Sub(shift).Store(dst[i:])
	}
	plainRoundSmall(dst[i:], a[i:])
}

func chooseSS(dst, c []float32, s, t float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, x, y := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for ; i+width <= len(dst); i += width {
		x.IfElse(simd.LoadFloat32s(c[i:]).NotEqual(zero), y).Store(dst[i:])
	}
	plainSelectSS(dst[i:], c[i:], s, t)
}

func fill(dst []float32, s float32) {
	width, i := simd.Float32s{}.Len(), 0
	x := simd.BroadcastFloat32s(s)
	for ; i+width <= len(dst); i += width {
		x.Store(dst[i:])
	}
	plainFill(dst[i:], s)
}

// binaryAll computes the operations without a loop of their own, those that processors have in vectors.
func binaryAll(op Op, dst, a, b []float32) {
	if op >= MulBits || op == Pow || op == Ldexp {
		plainBinary(op, dst, a, b)
		return
	}
	width, i := simd.Float32s{}.Len(), 0
	zero, one := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1)
	for ; i+width <= len(dst); i += width {
		x, y := simd.LoadFloat32s(a[i:]), simd.LoadFloat32s(b[i:])
		switch op {
		case Max:
			y = x.IfElse(x.Greater(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Min:
			y = x.IfElse(x.Less(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Eq:
			y = one.IfElse(x.Equal(y), zero)
		case Ne:
			y = one.IfElse(x.NotEqual(y), zero)
		case Lt:
			y = one.IfElse(x.Less(y), zero)
		case Le:
			y = one.IfElse(x.LessEqual(y), zero)
		case And:
			y = x.ToBits().And(y.ToBits()).BitsToFloat32()
		case Or:
			y = x.ToBits().Or(y.ToBits()).BitsToFloat32()
		case Xor:
			y = x.ToBits().Xor(y.ToBits()).BitsToFloat32()
		case AddBits:
			y = x.ToBits().Add(y.ToBits()).BitsToFloat32()
		case SubBits:
			y = x.ToBits().Sub(y.ToBits()).BitsToFloat32()
		case EqBits:
			y = one.IfElse(x.ToBits().Equal(y.ToBits()), zero)
		case NeBits:
			y = one.IfElse(x.ToBits().NotEqual(y.ToBits()), zero)
		case LtInt:
			y = one.IfElse(x.ToBits().BitsToInt32().Less(y.ToBits().BitsToInt32()), zero)
		case LeInt:
			y = one.IfElse(x.ToBits().BitsToInt32().LessEqual(y.ToBits().BitsToInt32()), zero)
		}
		y.Store(dst[i:])
	}
	plainBinary(op, dst[i:], a[i:], b[i:])
}

// binaryAllS is the same with a number on the right.
func binaryAllS(op Op, dst, a []float32, s float32) {
	if op >= MulBits || op == Pow || op == Ldexp {
		plainBinaryS(op, dst, a, s)
		return
	}
	width, i := simd.Float32s{}.Len(), 0
	zero, one, y := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1), simd.BroadcastFloat32s(s)
	for ; i+width <= len(dst); i += width {
		x := simd.LoadFloat32s(a[i:])
		switch op {
		case Max:
			x = y.IfElse(y.GreaterEqual(x), x)
			x = y.IfElse(y.NotEqual(y), x)
		case Min:
			x = y.IfElse(y.LessEqual(x), x)
			x = y.IfElse(y.NotEqual(y), x)
		case Eq:
			x = one.IfElse(x.Equal(y), zero)
		case Ne:
			x = one.IfElse(x.NotEqual(y), zero)
		case Lt:
			x = one.IfElse(x.Less(y), zero)
		case Le:
			x = one.IfElse(x.LessEqual(y), zero)
		case And:
			x = x.ToBits().And(y.ToBits()).BitsToFloat32()
		case Or:
			x = x.ToBits().Or(y.ToBits()).BitsToFloat32()
		case Xor:
			x = x.ToBits().Xor(y.ToBits()).BitsToFloat32()
		case AddBits:
			x = x.ToBits().Add(y.ToBits()).BitsToFloat32()
		case SubBits:
			x = x.ToBits().Sub(y.ToBits()).BitsToFloat32()
		case EqBits:
			x = one.IfElse(x.ToBits().Equal(y.ToBits()), zero)
		case NeBits:
			x = one.IfElse(x.ToBits().NotEqual(y.ToBits()), zero)
		case LtInt:
			x = one.IfElse(x.ToBits().BitsToInt32().Less(y.ToBits().BitsToInt32()), zero)
		case LeInt:
			x = one.IfElse(x.ToBits().BitsToInt32().LessEqual(y.ToBits().BitsToInt32()), zero)
		}
		x.Store(dst[i:])
	}
	plainBinaryS(op, dst[i:], a[i:], s)
}

// sBinaryAll is the same with a number on the left.
func sBinaryAll(op Op, dst []float32, s float32, b []float32) {
	width, i := simd.Float32s{}.Len(), 0
	zero, one, x := simd.BroadcastFloat32s(0), simd.BroadcastFloat32s(1), simd.BroadcastFloat32s(s)
	if op != Max && op != Min && op != Lt && op != Le && op != LtInt && op != LeInt {
		plainSBinary(op, dst, s, b)
		return
	}
	for ; i+width <= len(dst); i += width {
		y := simd.LoadFloat32s(b[i:])
		switch op {
		case Max:
			y = x.IfElse(x.Greater(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Min:
			y = x.IfElse(x.Less(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Lt:
			y = one.IfElse(x.Less(y), zero)
		case Le:
			y = one.IfElse(x.LessEqual(y), zero)
		case LtInt:
			y = one.IfElse(x.ToBits().BitsToInt32().Less(y.ToBits().BitsToInt32()), zero)
		case LeInt:
			y = one.IfElse(x.ToBits().BitsToInt32().LessEqual(y.ToBits().BitsToInt32()), zero)
		}
		y.Store(dst[i:])
	}
	plainSBinary(op, dst[i:], s, b[i:])
}

// Sums and extremes of groups. Two vectors of lanes are kept in registers at a time.

func groupSum(dst, a []float32, size int) {
	width := simd.Float32s{}.Len()
	n := lanesOf(size)
	if size < n || n%(2*width) != 0 {
		plainGroupSum(dst, a, size)
		return
	}
	whole := size - size%n
	var l Lanes
	for g := range dst {
		group := a[g*size : (g+1)*size]
		for j := 0; j < n; j += 2 * width {
			var x, y simd.Float32s
			for i := j; i < whole; i += n {
				x, y = x.Add(simd.LoadFloat32s(group[i:])), y.Add(simd.LoadFloat32s(group[i+width:]))
			}
			x.Store(l[j:])
			y.Store(l[j+width:])
		}
		plainSum(&l, group[whole:])
		dst[g] = l.total(n)
	}
}

func groupSumMul(dst, a, b []float32, size int) {
	width := simd.Float32s{}.Len()
	n := lanesOf(size)
	if size < n || n%(2*width) != 0 {
		plainGroupSumMul(dst, a, b, size)
		return
	}
	whole := size - size%n
	var l Lanes
	for g := range dst {
		p, q := a[g*size:(g+1)*size], b[g*size:(g+1)*size]
		for j := 0; j < n; j += 2 * width {
			var x, y simd.Float32s
			for i := j; i < whole; i += n {
				x = x.Add(simd.LoadFloat32s(p[i:]).Mul(simd.LoadFloat32s(q[i:])))
				y = y.Add(simd.LoadFloat32s(p[i+width:]).Mul(simd.LoadFloat32s(q[i+width:])))
			}
			x.Store(l[j:])
			y.Store(l[j+width:])
		}
		plainSumMul(&l, p[whole:], q[whole:])
		dst[g] = l.total(n)
	}
}

// groupExtreme folds a group to two vectors, and these element by element.
func groupExtreme(op Op, dst, a []float32, size int) {
	width := simd.Float32s{}.Len()
	if size%width != 0 || size == width || width > block {
		plainGroupExtreme(op, dst, a, size)
		return
	}
	var l [block]float32
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := simd.LoadFloat32s(group)
		for i := width; i < size; i += width {
			y := simd.LoadFloat32s(group[i:])
			if op == Max {
				y = x.IfElse(x.Greater(y), y)
			} else {
				y = x.IfElse(x.Less(y), y)
			}
			x = x.IfElse(x.NotEqual(x), y)
		}
		x.Store(l[:])
		plainGroupExtreme(op, dst[g:g+1], l[:width], width)
	}
}

func groupLargest(dst, a []float32, size int) {
	width := simd.Float32s{}.Len()
	if size%width != 0 || width > block {
		plainGroupLargest(dst, a, size)
		return
	}
	var l [block]float32
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := simd.LoadFloat32s(group).Abs().ToBits().BitsToInt32()
		for i := width; i < size; i += width {
			x = x.Max(simd.LoadFloat32s(group[i:]).Abs().ToBits().BitsToInt32())
		}
		x.ToBits().BitsToFloat32().Store(l[:])
		plainGroupLargest(dst[g:g+1], l[:width], width)
	}
}

// Vectorized sums: element i of a tile is added in lane i of a block, so that the width
// of the processor's vectors does not matter.

func sum(l *Lanes, a []float32) {
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

func sumMul(l *Lanes, a, b []float32) {
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

func sumDiff(l *Lanes, a, b []float32) {
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
