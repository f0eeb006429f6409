package program

import (
	"fmt"
	"math"
)

// Const is a scalar float.
func (b *Builder) Const(v float64) Value { return b.scalar(Float, v, 0) }

// ConstInt is a scalar int.
func (b *Builder) ConstInt(v int32) Value { return b.scalar(Int, 0, int64(v)) }

// ConstUint is a scalar uint.
func (b *Builder) ConstUint(v uint32) Value { return b.scalar(Uint, 0, int64(v)) }

func (b *Builder) scalar(t DType, f float64, i int64) Value {
	key := fmt.Sprint(t, f, i)
	if id, ok := b.memo[key]; ok && b.err == nil {
		return Value{b, id}
	}
	attr := Attr{Ints: []int64{i}}
	if t == Float {
		attr = Attr{Floats: []float64{f}}
	}
	v := b.Apply(OpConstant, attr, Type{DType: t})
	if b.err == nil {
		b.memo[key] = v.id
	}
	return v
}

// Full is a float value of the given shape filled with v.
func (b *Builder) Full(v float64, shape ...int) Value {
	return b.Apply(OpConstant, Attr{Floats: []float64{v}}, FloatType(shape...))
}

// Zeros is a float value of the given shape filled with 0.
func (b *Builder) Zeros(shape ...int) Value { return b.Full(0, shape...) }

// Table is a constant float value; data has all its elements in row-major order.
func (b *Builder) Table(data []float64, shape ...int) Value {
	return b.Apply(OpConstant, Attr{Floats: append([]float64(nil), data...)}, FloatType(shape...))
}

// Iota is the index along axis, as a value of type t.
func (b *Builder) Iota(t Type, axis int) Value {
	return b.Apply(OpIota, Attr{Axes: []int{axis}}, t)
}

// RandomBits is a uint value of random bits in the given shape, made from a uint[2] key;
// see [OpRandomBits].
func (b *Builder) RandomBits(key Value, shape ...int) Value {
	return b.Apply(OpRandomBits, Attr{}, Type{Uint, shape}, key)
}

func (v Value) unary(op Op) Value { return v.builder().Apply(op, Attr{}, Type{}, v) }

func (v Value) binary(op Op, o Value) Value { return v.builder().Apply(op, Attr{}, Type{}, v, o) }

// builder returns the owner of v. The zero Value gets a builder of its own that
// holds the mistake, so that the mistake surfaces where the result is used or built.
func (v Value) builder() *Builder {
	if v.b != nil {
		return v.b
	}
	b := NewBuilder("absent")
	b.fail(fmt.Errorf("operation on an absent value"))
	return b
}

// Neg is −v.
func (v Value) Neg() Value { return v.unary(OpNeg) }

// Abs is |v|.
func (v Value) Abs() Value { return v.unary(OpAbs) }

// Sign is −1, 0 or 1.
func (v Value) Sign() Value { return v.unary(OpSign) }

// Sqrt is the square root.
func (v Value) Sqrt() Value { return v.unary(OpSqrt) }

// Exp is eᵛ.
func (v Value) Exp() Value { return v.unary(OpExp) }

// Expm1 is eᵛ − 1.
func (v Value) Expm1() Value { return v.unary(OpExpm1) }

// Log is the natural logarithm.
func (v Value) Log() Value { return v.unary(OpLog) }

// Log1p is log(1 + v).
func (v Value) Log1p() Value { return v.unary(OpLog1p) }

// Tanh is the hyperbolic tangent.
func (v Value) Tanh() Value { return v.unary(OpTanh) }

// Floor rounds toward −∞.
func (v Value) Floor() Value { return v.unary(OpFloor) }

// Round rounds to the nearest integer, ties to even.
func (v Value) Round() Value { return v.unary(OpRound) }

// Logb is the binary exponent floor(log2|v|), exactly.
func (v Value) Logb() Value { return v.unary(OpLogb) }

// IsFinite is a bool: neither NaN nor infinite.
func (v Value) IsFinite() Value { return v.unary(OpIsFinite) }

// Not is logical or bitwise negation.
func (v Value) Not() Value { return v.unary(OpNot) }

// StopGradient is v, but the reverse pass treats it as a constant.
func (v Value) StopGradient() Value { return v.unary(OpStopGradient) }

// Add is v + o.
func (v Value) Add(o Value) Value { return v.binary(OpAdd, o) }

// Sub is v − o.
func (v Value) Sub(o Value) Value { return v.binary(OpSub, o) }

// Mul is v·o, element by element.
func (v Value) Mul(o Value) Value { return v.binary(OpMul, o) }

// Div is v/o.
func (v Value) Div(o Value) Value { return v.binary(OpDiv, o) }

// Pow is v to the power o.
func (v Value) Pow(o Value) Value { return v.binary(OpPow, o) }

// Max is the larger of v and o; NaN if either is NaN.
func (v Value) Max(o Value) Value { return v.binary(OpMax, o) }

// Min is the smaller of v and o; NaN if either is NaN.
func (v Value) Min(o Value) Value { return v.binary(OpMin, o) }

// Ldexp is v·2ᵒ for integers o.
func (v Value) Ldexp(o Value) Value { return v.binary(OpLdexp, o) }

// And is logical or bitwise and.
func (v Value) And(o Value) Value { return v.binary(OpAnd, o) }

// Or is logical or bitwise or.
func (v Value) Or(o Value) Value { return v.binary(OpOr, o) }

// Xor is logical or bitwise exclusive or.
func (v Value) Xor(o Value) Value { return v.binary(OpXor, o) }

// Shl shifts left by o bits.
func (v Value) Shl(o Value) Value { return v.binary(OpShl, o) }

// Shr shifts right by o bits.
func (v Value) Shr(o Value) Value { return v.binary(OpShr, o) }

// Eq is the bool v = o.
func (v Value) Eq(o Value) Value { return v.binary(OpEq, o) }

// Ne is the bool v ≠ o.
func (v Value) Ne(o Value) Value { return v.binary(OpNe, o) }

// Lt is the bool v < o.
func (v Value) Lt(o Value) Value { return v.binary(OpLt, o) }

// Le is the bool v ≤ o.
func (v Value) Le(o Value) Value { return v.binary(OpLe, o) }

// Gt is the bool v > o.
func (v Value) Gt(o Value) Value { return v.binary(OpGt, o) }

// Ge is the bool v ≥ o.
func (v Value) Ge(o Value) Value { return v.binary(OpGe, o) }

// Scale is c·v for a literal c.
func (v Value) Scale(c float64) Value { return v.Mul(v.builder().Const(c)) }

// Shift is v + c for a literal c.
func (v Value) Shift(c float64) Value { return v.Add(v.builder().Const(c)) }

// Square is v·v.
func (v Value) Square() Value { return v.Mul(v) }

// Clamp limits v to [lo, hi], where lo and hi are scalars with lo ≤ hi. Where v is NaN
// the result is NaN or any number in [lo, hi]; v.Max(lo).Min(hi) is the strict form, at a
// higher price. A quantizer turns everything that shares a scale with NaN into NaN by way
// of the scale. The gradient passes to v within the bounds; lo and hi get none.
func (v Value) Clamp(lo, hi Value) Value {
	return v.builder().Apply(OpClamp, Attr{}, Type{}, v, lo, hi)
}

// Clip is [Value.Clamp] to literal bounds. As there, what becomes of NaN is not defined.
func (v Value) Clip(lo, hi float64) Value {
	b := v.builder()
	switch {
	case math.IsNaN(lo) || math.IsNaN(hi):
		return b.fail(fmt.Errorf("clip to [%v, %v]: neither bound may be NaN", lo, hi))
	case lo > hi:
		return b.fail(fmt.Errorf("clip to [%v, %v]: the lower bound must not be above the upper", lo, hi))
	}
	return v.Clamp(b.Const(lo), b.Const(hi))
}

// Select is x where v, a bool, is true, and y elsewhere.
func (v Value) Select(x, y Value) Value {
	return v.builder().Apply(OpSelect, Attr{}, Type{}, v, x, y)
}

// Convert is the same number in another element type.
func (v Value) Convert(t DType) Value {
	return v.builder().Apply(OpConvert, Attr{}, Type{DType: t}, v)
}

// Bitcast reads the same 32 bits as another element type.
func (v Value) Bitcast(t DType) Value {
	return v.builder().Apply(OpBitcast, Attr{}, Type{DType: t}, v)
}
