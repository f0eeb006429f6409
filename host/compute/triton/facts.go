package triton

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// facts are properties of all elements of a value. Quantizers to small floats divide and multiply
// by powers of two within known bounds. With these facts such operations take few instructions, and
// redundant clamps take none.
type facts struct {
	inBFloat16 bool // all are exact in bfloat16
	bounded    bool // all are numbers from low to high, which are finite
	low, high  float64
	zero       bool // all are products with zero, of either sign
	power      bool // with bounded: all are powers of two, and some may be zero if low is

	bits *value // the bits of these floats
	// exponents means that each element is the largest power of two not above the magnitude of this
	// bounded value's element, unless that is subnormal; or the bits of that power.
	exponents *value
	within    string // each element of that value has at most ratio times the magnitude of this one's
	ratio     float64
	logarithm *value // logb of these floats, plus a constant
	plus      float64
}

// exponentBits masks the exponent of a float32.
const exponentBits = 0x7F800000

// ofElements returns the facts that remain true after elements are rearranged: all but the
// relations to other values.
func (f facts) ofElements() facts {
	f.bits, f.exponents, f.within, f.ratio, f.logarithm, f.plus = nil, nil, "", 0, nil, 0
	return f
}

// is returns the number to which all elements are equal, if it is known.
func (f facts) is() (x float64, ok bool) { return f.low, f.bounded && f.low == f.high }

// isPower reports whether x is a power of two such that neither x nor 1/x is subnormal.
func isPower(x float64) bool {
	fraction, exponent := math.Frexp(x)
	return fraction == 0.5 && exponent-1 >= leastExponent && exponent-1 <= -leastExponent
}

// leastExponent is the smallest exponent of normal numbers.
const leastExponent = -126

// between returns the facts of elements that are in [low, high].
func between(low, high float64) facts { return facts{bounded: true, low: low, high: high} }

// clamp omits bounds that all elements are known to satisfy.
func (w *writer) clamp(_ *program.Node, args []value) value {
	x := args[0]
	low, constant := args[1].is()
	high, constantHigh := args[2].is()
	if !constant || !constantHigh {
		return w.apply("arith.minnumf", w.apply("arith.maxnumf", x, args[1]), args[2])
	}
	if x.logarithm != nil && x.plus+leastExponent-1 <= low && high <= x.plus-leastExponent+2 {
		x = w.exponent(*x.logarithm, x.plus)
	}
	v, known := x, between(low, high)
	if x.bounded {
		known = between(min(max(x.low, low), high), max(min(x.high, high), low))
	}
	known.power = x.power && isPower(low) && isPower(high)
	if !x.bounded || x.low < low {
		v = w.apply("arith.maxnumf", v, args[1])
	}
	if !x.bounded || x.high > high {
		v = w.apply("arith.minnumf", v, args[2])
	} else if x.exponents != nil && isPower(low) {
		known.within, known.ratio = x.exponents.name, 2
	}
	v.facts = known
	return v
}

// exponent returns logb(x), plus a constant, for normal numbers. It returns −127 plus the constant
// or more for subnormal numbers, and 128 plus the constant for NaN and infinities.
func (w *writer) exponent(x value, plus float64) value {
	bits := w.bits(w.apply("math.absf", x), "i32")
	biased := w.apply("arith.shrui", bits, w.number(bits, 23))
	e := w.cast("arith.sitofp", w.apply("arith.subi", biased, w.number(biased, 127)), "f32")
	return w.apply("arith.addf", e, w.number(e, plus))
}

func (w *writer) logb(_ *program.Node, args []value) value {
	v := w.library("__nv_logbf", args...)
	v.logarithm = &args[0]
	return v
}

// round preserves the facts about bounds.
func (w *writer) round(_ *program.Node, args []value) value {
	v := w.library("__nv_rintf", args...)
	if x := args[0]; x.bounded {
		v.facts = between(math.RoundToEven(x.low), math.RoundToEven(x.high))
	}
	return v
}

// sumOf returns the bounds of a sum of n elements, if it is certain to be finite.
func (f facts) sumOf(n int) (sum facts) {
	const largest = math.MaxFloat32 / 4 // allows for rounding, and for summing all parts of a row
	low, high := f.low*float64(n), f.high*float64(n)
	if f.bounded && low > -largest && high < largest {
		sum = between(min(low, 0), max(high, 0)) // some elements may be masked out
	}
	return sum
}

func (w *writer) add(n *program.Node, args []value) value {
	for i, x := range args {
		if args[1-i].zero { // the product need not be computed
			return w.apply("arith.addf", x, w.number(x, 0))
		}
	}
	v := byType("arith.addf", "arith.addi", "arith.addi")(w, n, args)
	for i, x := range args {
		if c, ok := args[1-i].is(); ok && x.logarithm != nil {
			v.logarithm, v.plus = x.logarithm, x.plus+c
		}
	}
	return v
}

func (w *writer) mul(n *program.Node, args []value) value {
	v := byType("arith.mulf", "arith.muli", "arith.muli")(w, n, args)
	for i, x := range args {
		c, ok := args[1-i].is()
		if ok && c == 0 && x.bounded && v.elem == "f32" {
			v.zero = true
			break
		}
		finite := x.bounded && max(-x.low, x.high)*c <= math.MaxFloat32
		if !ok || !finite || v.elem != "f32" || !isPower(c) {
			continue
		}
		v.facts = between(float64(float32(x.low*c)), float64(float32(x.high*c)))
		v.power = x.power && (x.low == 0 || isPower(v.low)) && isPower(v.high)
		v.within, v.ratio = x.within, x.ratio/c
		break
	}
	return v
}

// and computes the bitwise and. It recognizes the mask that extracts powers of two from the bits of
// floats.
func (w *writer) and(_ *program.Node, args []value) value {
	v := w.apply("arith.andi", args...)
	for i, x := range args {
		mask, ok := args[1-i].is()
		if floats := x.facts.bits; ok && mask == exponentBits && floats != nil && floats.bounded {
			v.exponents = floats
		}
	}
	return v
}

func (w *writer) bits(x value, to string) value {
	if to == x.elem {
		return x
	}
	v := w.set(to, x.dims, "tt.bitcast %s : %s -> %s", x.name, x.typ(), typeText(to, x.dims))
	switch {
	case to == "i32":
		v.facts.bits = &x
	case x.exponents != nil:
		_, exponent := math.Frexp(max(-x.exponents.low, x.exponents.high))
		v.facts = between(0, math.Ldexp(1, exponent-1))
		v.power, v.exponents = isPower(v.high), x.exponents
	}
	return v
}

// byPower divides by powers of two by multiplying by their reciprocals, which is exact unless the
// result is subnormal.
func (w *writer) byPower(x, y value) value {
	bits := w.bits(y, "i32")
	const one = 127 << 23 // the bits of 1
	inverse := w.bits(w.apply("arith.subi", w.number(bits, 2*one), bits), "f32")
	v := w.apply("arith.mulf", x, w.spread(inverse, x.dims))
	if x.name == y.within {
		v.facts = between(-y.ratio, y.ratio)
	}
	return v
}

// ldexp multiplies by powers of two if the exponents are known to be small enough. Otherwise it
// calls the libdevice function, which takes integer exponents.
func (w *writer) ldexp(_ *program.Node, args []value) value {
	x, exponent := args[0], args[1]
	n := w.cast("arith.fptosi", exponent, "i32")
	power := func(n value) value {
		stored := w.apply("arith.addi", n, w.number(n, 127))
		return w.bits(w.apply("arith.shli", stored, w.number(n, 23)), "f32")
	}
	within := func(least, most float64) bool {
		return exponent.bounded && exponent.low >= least && exponent.high <= most
	}
	switch {
	case within(leastExponent, 1-leastExponent):
		return w.apply("arith.mulf", x, power(n))
	case within(2*leastExponent, 2-2*leastExponent): // twice
		half := w.apply("arith.shrsi", n, w.number(n, 1))
		x = w.apply("arith.mulf", x, power(half))
		return w.apply("arith.mulf", x, power(w.apply("arith.subi", n, half)))
	}
	v := w.library("__nv_ldexpf", x, n)
	return w.selectValue(w.compare("uno", exponent, exponent), exponent, v)
}
