//go:build goexperiment.simd

package loops

import (
	"math"
	"simd"
)

// These are vectorized loops, for any vector width. They return the number of elements computed.
// All slices are cut to the length of dst, which saves bounds checks. The loops compare and select
// instead of using the processor's maximum, whose result for NaN and zeros depends on the order in
// which the compiler puts the operands.

// few is the largest number of elements for which plain loops are faster.
const few = 8

func binary(op Op, dst, a, b []float32) (i int) {
	if len(dst) < few {
		return 0
	}
	a, b = a[:len(dst)], b[:len(dst)]
	width := simd.Float32s{}.Len()
	switch op {
	case Add:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Add(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	case Sub:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Sub(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	case Mul:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Mul(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	case Div:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Div(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	default:
		i = operation(op, dst, a, 0, b, 0)
	}
	done()
	return i
}

func binaryS(op Op, dst, a []float32, s float32) (i int) {
	if len(dst) < few {
		return 0
	}
	a = a[:len(dst)]
	width, y := simd.Float32s{}.Len(), simd.BroadcastFloat32s(s)
	switch op {
	case Add:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Add(y).Store(dst[i:])
		}
	case Sub:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Sub(y).Store(dst[i:])
		}
	case Mul:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Mul(y).Store(dst[i:])
		}
	case Div:
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).Div(y).Store(dst[i:])
		}
	case Lt:
		for one := simd.BroadcastFloat32s(1); i <= len(dst)-width; i += width {
			one.Masked(simd.LoadFloat32s(a[i:]).Less(y)).Store(dst[i:])
		}
	case Le:
		for one := simd.BroadcastFloat32s(1); i <= len(dst)-width; i += width {
			one.Masked(simd.LoadFloat32s(a[i:]).LessEqual(y)).Store(dst[i:])
		}
	case Shl, ShrUint:
		by := uint64(math.Float32bits(s) & 31)
		for ; i <= len(dst)-width; i += width {
			x := simd.LoadFloat32s(a[i:]).ToBits()
			if op == Shl {
				x = x.ShiftAllLeft(by)
			} else {
				x = x.ShiftAllRight(by)
			}
			x.BitsToFloat32().Store(dst[i:])
		}
	default:
		i = operation(op, dst, a, 0, nil, s)
	}
	done()
	return i
}

func sBinary(op Op, dst []float32, s float32, b []float32) (i int) {
	if len(dst) < few {
		return 0
	}
	b = b[:len(dst)]
	width, x := simd.Float32s{}.Len(), simd.BroadcastFloat32s(s)
	switch op {
	case Add, Mul:
		return binaryS(op, dst, b, s)
	case Sub:
		for ; i <= len(dst)-width; i += width {
			x.Sub(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	case Div:
		for ; i <= len(dst)-width; i += width {
			x.Div(simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	default:
		i = operation(op, dst, nil, s, b, 0)
	}
	done()
	return i
}

// operation computes binary operations that have a vector instruction but no loop of their own. The
// first operand is a, or s if a is nil; the second is b, or t if b is nil.
func operation(op Op, dst, a []float32, s float32, b []float32, t float32) (i int) {
	if op >= MulBits || op == Ldexp {
		return 0
	}
	width := simd.Float32s{}.Len()
	x, y, one := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t), simd.BroadcastFloat32s(1)
	right := y
	for ; i <= len(dst)-width; i += width {
		if a != nil {
			x = simd.LoadFloat32s(a[i:])
		}
		if y = right; b != nil {
			y = simd.LoadFloat32s(b[i:])
		}
		switch op {
		case Max:
			y = x.IfElse(x.Greater(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Min:
			y = x.IfElse(x.Less(y), y)
			y = x.IfElse(x.NotEqual(x), y)
		case Eq:
			y = one.Masked(x.Equal(y))
		case Ne:
			y = one.Masked(x.NotEqual(y))
		case Lt:
			y = one.Masked(x.Less(y))
		case Le:
			y = one.Masked(x.LessEqual(y))
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
			y = one.Masked(x.ToBits().Equal(y.ToBits()))
		case NeBits:
			y = one.Masked(x.ToBits().NotEqual(y.ToBits()))
		case LtInt:
			y = one.Masked(x.ToBits().BitsToInt32().Less(y.ToBits().BitsToInt32()))
		case LeInt:
			y = one.Masked(x.ToBits().BitsToInt32().LessEqual(y.ToBits().BitsToInt32()))
		}
		y.Store(dst[i:])
	}
	return i
}

// unary computes the unary operations that have vector instructions, as well as exponentials and
// hyperbolic tangents.
func unary(op Op, dst, a []float32) (i int) {
	switch op {
	case Neg, Abs, Sign, Sqrt, Floor, Round, Tanh, IsFinite, UintToFloat:
	case Exp:
		return expLin(dst, a, 1, 0)
	default:
		return 0
	}
	if len(dst) < few {
		return 0
	}
	a = a[:len(dst)]
	const integers = 1 << 23 // all floats from here on are integers
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	zero, one, shift := all(0), all(1), all(integers)
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:])
		y := x
		switch op {
		case Neg:
			y = x.Mul(all(-1)) // flips the sign of zeros, too
		case Abs:
			// simd's Abs keeps the sign of −0 on processors without AVX.
			y = x.ToBits().And(simd.BroadcastUint32s(math.MaxInt32)).BitsToFloat32()
		case Sign:
			y = one.IfElse(x.Greater(zero), all(-1).Masked(x.Less(zero)))
			y = x.IfElse(x.NotEqual(x), y)
		case Sqrt:
			y = x.Sqrt()
		case Floor, Round:
			// Adding and subtracting 2²³ rounds to an integer; larger numbers are integers already. Zeros
			// become positive. The floor subtracts 1 from numbers that were rounded up, and keeps integers.
			y = x.Abs().Add(shift).Sub(shift)
			y = zero.Sub(y).IfElse(x.Less(zero), y)
			if op == Floor {
				y = y.Sub(one).IfElse(y.Greater(x), y)
				y = x.IfElse(y.Equal(x), y)
			}
			y = y.IfElse(x.Abs().Less(shift), x)
		case Tanh:
			y = tanhVector(x)
		case IsFinite:
			y = one.Masked(x.Sub(x).Equal(zero))
		case UintToFloat: // the sum of two exact halves, so that only the sum rounds
			upper := x.ToBits().ShiftAllRight(16).ConvertToInt32().ConvertToFloat32().Mul(all(1 << 16))
			y = upper.Add(x.ToBits().And(simd.BroadcastUint32s(0xffff)).ConvertToInt32().ConvertToFloat32())
		}
		y.Store(dst[i:])
	}
	done()
	return i
}

func tanhVector(x simd.Float32s) simd.Float32s {
	all := simd.BroadcastFloat32s
	m := x.Abs()
	far := all(1).Sub(all(2).Div(expVector(m.Add(m)).Add(all(1))))
	far = all(0).Sub(far).IfElse(x.Less(all(0)), far)
	z := x.Mul(x)
	p := z.Mul(all(tanhP0)).Add(all(tanhP1))
	p = p.Mul(z).Add(all(tanhP2))
	p = p.Mul(z).Add(all(tanhP3))
	p = p.Mul(z).Add(all(tanhP4))
	p = p.Mul(z).Mul(x).Add(x)
	return far.IfElse(m.GreaterEqual(all(tanhNear)), p)
}

func expVector(x simd.Float32s) simd.Float32s {
	all := simd.BroadcastFloat32s
	c := all(expLeast).IfElse(x.Less(all(expLeast)), x)
	c = all(expMost).IfElse(c.Greater(all(expMost)), c)
	y, k := reduced(c, all(shifter), all(log2e), all(log2Upper), all(log2Lower), all(expP0),
		all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1))
	return power(y, k)
}

// reduced returns y and n plus the shifter, such that exp(x) = y·2ⁿ. Loops load the constants once
// and pass each as an argument, because the compiler keeps the fields of large structs in memory.
func reduced(
	x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one simd.Float32s,
) (y, shifted simd.Float32s) {
	shifted = x.Mul(factor).Add(shift)
	n := shifted.Sub(shift)
	r := x.Sub(n.Mul(upper)).Sub(n.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	return p.Mul(r.Mul(r)).Add(r).Add(one), shifted
}

// power multiplies y by 2ⁿ in two factors, as [exp] does.
func power(y, shifted simd.Float32s) simd.Float32s {
	k := shifted.ToBits().BitsToInt32().Sub(simd.BroadcastInt32s(shifterBits))
	half, bias := k.ShiftAllRight(1), simd.BroadcastInt32s(127)
	y = y.Mul(half.Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
	return y.Mul(k.Sub(half).Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
}

func expLin(dst, a []float32, scale, down float32) (i int) {
	a = a[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	times, less, low, high := all(scale), all(down), all(expLeast), all(expMost)
	shift, factor, upper, lower, one := all(shifter), all(log2e), all(log2Upper), all(log2Lower),
		all(1)
	p0, p1, p2, p3, p4, p5 := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5)
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:]).Mul(times).Sub(less)
		x = low.IfElse(x.Less(low), x)
		x = high.IfElse(x.Greater(high), x)
		power(reduced(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)).Store(dst[i:])
	}
	done()
	return i
}

func mulMulS(dst, a, b []float32, s float32) (i int) {
	a, b = a[:len(dst)], b[:len(dst)]
	width, x := simd.Float32s{}.Len(), simd.BroadcastFloat32s(s)
	for ; i <= len(dst)-width; i += width {
		simd.LoadFloat32s(a[i:]).Mul(simd.LoadFloat32s(b[i:])).Mul(x).Store(dst[i:])
	}
	done()
	return i
}

func mulMul(dst, a, b, c []float32) (i int) {
	a, b, c = a[:len(dst)], b[:len(dst)], c[:len(dst)]
	width := simd.Float32s{}.Len()
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:]).Mul(simd.LoadFloat32s(b[i:]))
		x.Mul(simd.LoadFloat32s(c[i:])).Store(dst[i:])
	}
	done()
	return i
}

func intoAddS(dst, a []float32, s, t float32) (i int) {
	a = a[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	x, y := all(s), all(t)
	for ; i <= len(dst)-width; i += width {
		x.Div(simd.LoadFloat32s(a[i:]).Add(y)).Store(dst[i:])
	}
	done()
	return i
}

func siluSlope(dst, a, b []float32) (i int) {
	a, b = a[:len(dst)], b[:len(dst)]
	width, one := simd.Float32s{}.Len(), simd.BroadcastFloat32s(1)
	for ; i <= len(dst)-width; i += width {
		x, y := simd.LoadFloat32s(a[i:]), simd.LoadFloat32s(b[i:])
		y.Mul(x.Mul(one.Sub(y)).Add(one)).Store(dst[i:])
	}
	done()
	return i
}

func linAdd(dst, a []float32, s float32, b []float32, t float32) (i int) {
	a, b = a[:len(dst)], b[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	x, y := all(s), all(t)
	for ; i <= len(dst)-width; i += width {
		simd.LoadFloat32s(a[i:]).Mul(x).Add(simd.LoadFloat32s(b[i:]).Mul(y)).Store(dst[i:])
	}
	done()
	return i
}

func linMul(dst, a []float32, s float32, b, c []float32, t float32) (i int) {
	a, b, c = a[:len(dst)], b[:len(dst)], c[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	x, y := all(s), all(t)
	for ; i <= len(dst)-width; i += width {
		p := simd.LoadFloat32s(b[i:]).Mul(simd.LoadFloat32s(c[i:])).Mul(y)
		simd.LoadFloat32s(a[i:]).Mul(x).Add(p).Store(dst[i:])
	}
	done()
	return i
}

// addSquares adds (a − s)² to dst.
func addSquares(dst, a []float32, s float32) (i int) {
	a = a[:len(dst)]
	width, x := simd.Float32s{}.Len(), simd.BroadcastFloat32s(s)
	for ; i <= len(dst)-width; i += width {
		difference := simd.LoadFloat32s(a[i:]).Sub(x)
		simd.LoadFloat32s(dst[i:]).Add(difference.Mul(difference)).Store(dst[i:])
	}
	done()
	return i
}

func sqrtLin(dst, a []float32, s, t float32) (i int) {
	a = a[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	x, y := all(s), all(t)
	for ; i <= len(dst)-width; i += width {
		simd.LoadFloat32s(a[i:]).Sqrt().Mul(x).Add(y).Store(dst[i:])
	}
	done()
	return i
}

func clamp(dst, a []float32, lo, hi float32) (i int) {
	a = a[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	low, high := all(lo), all(hi)
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:])
		x = low.IfElse(x.Less(low), x)
		high.IfElse(x.Greater(high), x).Store(dst[i:])
	}
	done()
	return i
}

func choose(dst, c, a []float32, s float32, b []float32, t float32) (i int) {
	c = c[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	zero, x, y := all(0), all(s), all(t)
	switch {
	case a != nil && b != nil:
		a, b = a[:len(dst)], b[:len(dst)]
		for ; i <= len(dst)-width; i += width {
			taken := simd.LoadFloat32s(c[i:]).NotEqual(zero)
			simd.LoadFloat32s(a[i:]).IfElse(taken, simd.LoadFloat32s(b[i:])).Store(dst[i:])
		}
	case a != nil:
		a = a[:len(dst)]
		for ; i <= len(dst)-width; i += width {
			simd.LoadFloat32s(a[i:]).IfElse(simd.LoadFloat32s(c[i:]).NotEqual(zero), y).Store(dst[i:])
		}
	default:
		for ; i <= len(dst)-width; i += width {
			if b != nil {
				y = simd.LoadFloat32s(b[i:])
			}
			x.IfElse(simd.LoadFloat32s(c[i:]).NotEqual(zero), y).Store(dst[i:])
		}
	}
	done()
	return i
}

func roundMulS(dst, a []float32, s float32) (i int) {
	a = a[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	shift, y, sign := all(shifter), all(s), simd.BroadcastUint32s(1<<31)
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:])
		rounded := x.Add(shift).Sub(shift).ToBits().Or(x.ToBits().And(sign)) // also of −0
		rounded.BitsToFloat32().Mul(y).Store(dst[i:])
	}
	done()
	return i
}

func near(dst, a, b []float32, s float32) (i int) {
	a, b = a[:len(dst)], b[:len(dst)]
	width, all := simd.Float32s{}.Len(), simd.BroadcastFloat32s
	most, one := all(s), all(1)
	for ; i <= len(dst)-width; i += width {
		x := simd.LoadFloat32s(a[i:]).Sub(simd.LoadFloat32s(b[i:])).Abs()
		one.Masked(x.LessEqual(most)).Store(dst[i:])
	}
	done()
	return i
}

func fill(dst []float32, s float32) (i int) {
	width, x := simd.Float32s{}.Len(), simd.BroadcastFloat32s(s)
	for ; i <= len(dst)-width; i += width {
		x.Store(dst[i:])
	}
	done()
	return i
}

func butterfly(x, y []float32) (i int) {
	y = y[:len(x)]
	width := simd.Float32s{}.Len()
	for ; i <= len(x)-width; i += width {
		a, b := simd.LoadFloat32s(x[i:]), simd.LoadFloat32s(y[i:])
		a.Add(b).Store(x[i:])
		a.Sub(b).Store(y[i:])
	}
	return i
}

func butterflies(w, x, y, z []float32) (i int) {
	x, y, z = x[:len(w)], y[:len(w)], z[:len(w)]
	width := simd.Float32s{}.Len()
	for ; i <= len(w)-width; i += width {
		a, b := simd.LoadFloat32s(w[i:]), simd.LoadFloat32s(x[i:])
		c, d := simd.LoadFloat32s(y[i:]), simd.LoadFloat32s(z[i:])
		a, b, c, d = a.Add(b), a.Sub(b), c.Add(d), c.Sub(d)
		a.Add(c).Store(w[i:])
		b.Add(d).Store(x[i:])
		a.Sub(c).Store(y[i:])
		b.Sub(d).Store(z[i:])
	}
	return i
}

func rope(dst, x, cos, sin []float32, back bool) (i int) {
	width, n, sign := simd.Float32s{}.Len(), len(cos), float32(1)
	if back {
		sign = -1
	}
	for ; i+width <= n; i += width {
		a, b := simd.LoadFloat32s(x[i:]), simd.LoadFloat32s(x[n+i:])
		c, s := simd.LoadFloat32s(cos[i:]), simd.LoadFloat32s(sin[i:]).Mul(simd.BroadcastFloat32s(sign))
		a.Mul(c).Sub(b.Mul(s)).Store(dst[i:])
		b.Mul(c).Add(a.Mul(s)).Store(dst[n+i:])
	}
	done()
	return i
}

// rounded rounds x to bfloat16 and returns words with the bits in their upper halves; the lower
// halves are undefined.
func rounded(x simd.Float32s) simd.Uint32s {
	all, bits := simd.BroadcastUint32s, x.ToBits()
	y := bits.Add(all(0x7fff)).Add(bits.ShiftAllRight(16).And(all(1)))
	return bits.Or(all(1<<22)).IfElse(x.NotEqual(x), y)
}

const upperHalf = 0xffff << 16

func roundToBFloat16(dst, a []float32) (i int) {
	a = a[:len(dst)]
	width, upper := simd.Float32s{}.Len(), simd.BroadcastUint32s(upperHalf)
	for ; i <= len(dst)-width; i += width {
		rounded(simd.LoadFloat32s(a[i:])).And(upper).BitsToFloat32().Store(dst[i:])
	}
	done()
	return i
}

// Sums of a tile: element i is added to lane i of its block, for any vector width.

func sum(l *Lanes, a []float32) (i int) {
	width := simd.Float32s{}.Len()
	for ; i <= len(a)-block; i += block {
		a0 := (*[block]float32)(a[i:])
		for j := 0; j <= block-width; j += width {
			simd.LoadFloat32s(l[j:]).Add(simd.LoadFloat32s(a0[j:])).Store(l[j:])
		}
	}
	done()
	return i
}

func sumMul(l *Lanes, a, b []float32) (i int) {
	b = b[:len(a)]
	width := simd.Float32s{}.Len()
	for ; i <= len(a)-block; i += block {
		a0, b0 := (*[block]float32)(a[i:]), (*[block]float32)(b[i:])
		for j := 0; j <= block-width; j += width {
			x := simd.LoadFloat32s(a0[j:]).Mul(simd.LoadFloat32s(b0[j:]))
			simd.LoadFloat32s(l[j:]).Add(x).Store(l[j:])
		}
	}
	done()
	return i
}
