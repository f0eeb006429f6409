package reference_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// evaluate runs a program with one output on the given tensors.
func evaluate(
	t *testing.T, build func(args []program.Value) program.Value, args ...reference.Tensor,
) reference.Tensor {
	t.Helper()
	b := program.NewBuilder("test")
	values := make([]program.Value, len(args))
	for i, a := range args {
		values[i] = b.Input(string(rune('a'+i)), a.Type)
	}
	b.Output("out", build(values))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := reference.RunArgs(p, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// apply evaluates one operation.
func apply(
	t *testing.T, op program.Op, attr program.Attr, want program.Type, args ...reference.Tensor,
) reference.Tensor {
	t.Helper()
	if len(args) == 0 { // an input is needed to get the builder
		args = []reference.Tensor{reference.Float(0)}
		return evaluate(t, func(v []program.Value) program.Value {
			return v[0].Builder().Apply(op, attr, want)
		}, args...)
	}
	return evaluate(t, func(v []program.Value) program.Value {
		return v[0].Builder().Apply(op, attr, want, v...)
	}, args...)
}

var (
	inf, nan = math.Inf(1), math.NaN()
	negZero  = math.Copysign(0, -1)
	tiny     = math.SmallestNonzeroFloat32 // subnormal in binary32
)

// equal compares bits: −0 differs from 0, NaN equals NaN.
func equal(t *testing.T, got, want reference.Tensor) {
	t.Helper()
	bitwise := cmp.Comparer(func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || (math.IsNaN(a) && math.IsNaN(b))
	})
	if diff := cmp.Diff(want, got, bitwise, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func f(v ...float64) reference.Tensor { return reference.Floats(v, len(v)) }
func i(v ...int32) reference.Tensor   { return reference.Ints(v, len(v)) }
func u(v ...uint32) reference.Tensor  { return reference.Uints(v, len(v)) }
func b(v ...bool) reference.Tensor    { return reference.Bools(v, len(v)) }

func TestUnary(t *testing.T) {
	const maxInt, minInt = math.MaxInt32, math.MinInt32
	cases := []struct {
		op      program.Op
		x, want reference.Tensor
	}{
		{program.OpNeg, f(1, -2.5, 0, inf, nan), f(-1, 2.5, negZero, -inf, nan)},
		{program.OpNeg, i(1, minInt, maxInt), i(-1, minInt, -maxInt)},
		{program.OpAbs, f(-1, negZero, -inf, nan), f(1, 0, inf, nan)},
		{program.OpAbs, i(-5, minInt, 5), i(5, minInt, 5)},
		{program.OpSign, f(-3, negZero, 0, tiny, inf, nan), f(-1, 0, 0, 1, 1, nan)},
		{program.OpSign, i(-3, 0, maxInt), i(-1, 0, 1)},
		{program.OpSqrt, f(4, 2, 0, -1, inf, nan), f(2, math.Sqrt2, 0, nan, inf, nan)},
		{program.OpExp, f(0, 1, -inf, inf, nan), f(1, math.E, 0, inf, nan)},
		{program.OpExpm1, f(0, 1e-17, -inf, inf, nan), f(0, 1e-17, -1, inf, nan)},
		{program.OpLog, f(1, math.E, 0, -1, inf, nan), f(0, 1, -inf, nan, inf, nan)},
		{program.OpLog1p, f(0, 1e-17, -1, -2, inf, nan), f(0, 1e-17, -inf, nan, inf, nan)},
		{program.OpTanh, f(0, inf, -inf, nan), f(0, 1, -1, nan)},
		{program.OpSin, f(0, math.Pi/6, 1e-17, -inf, inf, nan), f(0, 0.5, 1e-17, nan, nan, nan)},
		{program.OpCos, f(0, math.Pi, -inf, inf, nan), f(1, -1, nan, nan, nan)},
		{program.OpFloor, f(1.5, -1.5, 2, -inf, inf, nan), f(1, -2, 2, -inf, inf, nan)},
		{program.OpRound, f(0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, inf, nan),
			f(0, 2, 2, negZero, -2, 2, inf, nan)},
		{program.OpLogb, f(1, 0.75, 8, -8, tiny, 0, -inf, inf, nan),
			f(0, -1, 3, 3, -149, -inf, inf, inf, nan)},
		{program.OpIsFinite, f(0, 1e300, inf, -inf, nan), b(true, true, false, false, false)},
		{program.OpNot, b(true, false), b(false, true)},
		{program.OpNot, i(0, -1, 5), i(-1, 0, -6)},
		{program.OpNot, u(0, math.MaxUint32, 5), u(math.MaxUint32, 0, math.MaxUint32-5)},
	}
	for _, c := range cases {
		t.Run(c.op.String()+"/"+c.x.Type.DType.String(), func(t *testing.T) {
			equal(t, apply(t, c.op, program.Attr{}, program.Type{}, c.x), c.want)
		})
	}
}

func TestBinary(t *testing.T) {
	const maxInt, minInt, maxUint = math.MaxInt32, math.MinInt32, math.MaxUint32
	cases := []struct {
		op         program.Op
		x, y, want reference.Tensor
	}{
		{program.OpAdd, f(1, inf, inf, nan), f(2, 1, -inf, 1), f(3, inf, nan, nan)},
		{program.OpAdd, i(maxInt, 1), i(1, -2), i(minInt, -1)},
		{program.OpAdd, u(maxUint, 1), u(1, 2), u(0, 3)},
		{program.OpSub, f(1, inf), f(3, inf), f(-2, nan)},
		{program.OpSub, i(minInt), i(1), i(maxInt)},
		{program.OpSub, u(0), u(1), u(maxUint)},
		{program.OpMul, f(2, 0, 0), f(-3, inf, nan), f(-6, nan, nan)},
		{program.OpMul, i(1<<20, -7), i(1<<20+1, 3), i(1<<20, -21)},
		{program.OpMul, u(maxUint, 1<<31), u(maxUint, 3), u(1, 1<<31)},
		{program.OpDiv, f(1, -1, 0, inf, 7), f(0, 0, 0, inf, 2), f(inf, -inf, nan, nan, 3.5)},
		{program.OpPow, f(2, 0, -8, 4, nan, 1, -1, 0), f(10, 0, 1/3., -0.5, 0, nan, inf, -1),
			f(1024, 1, nan, 0.5, 1, 1, 1, inf)},
		{program.OpMax, f(1, nan, inf, -1), f(2, 1, nan, -2), f(2, nan, nan, -1)},
		{program.OpMax, i(minInt, 3), i(maxInt, -3), i(maxInt, 3)},
		{program.OpMin, f(1, nan, -inf, -1), f(2, 1, nan, -2), f(1, nan, nan, -2)},
		{program.OpMin, u(maxUint, 3), u(5, 4), u(5, 3)},
		{program.OpLdexp, f(1.5, 1, 3, -1, 0, 1, inf, nan, 1),
			f(3, -300, 0, 300, 300, nan, -300, 0, -149),
			f(12, math.Exp2(-300), 3, -math.Exp2(300), 0, nan, inf, nan, tiny)},
		{program.OpAnd, b(true, true, false), b(true, false, false), b(true, false, false)},
		{program.OpOr, b(true, true, false), b(true, false, false), b(true, true, false)},
		{program.OpXor, b(true, true, false), b(true, false, false), b(false, true, false)},
		{program.OpAnd, i(-1, 6), i(5, 3), i(5, 2)},
		{program.OpOr, i(minInt, 6), i(5, 3), i(minInt+5, 7)},
		{program.OpXor, u(maxUint, 6), u(5, 3), u(maxUint-5, 5)},
		{program.OpShl, i(1, 1, -1, 3), i(31, 0, 4, 30), i(minInt, 1, -16, -1<<30)},
		{program.OpShl, u(1, 3), u(31, 31), u(1<<31, 1<<31)},
		{program.OpShr, i(minInt, 5), i(31, 1), i(-1, 2)},
		{program.OpShr, u(1<<31, 5), u(31, 1), u(1, 2)},
		{program.OpEq, f(1, nan, negZero), f(1, nan, 0), b(true, false, true)},
		{program.OpNe, f(1, nan, negZero), f(1, nan, 0), b(false, true, false)},
		{program.OpLt, f(1, nan, 1, -inf), f(2, 1, nan, inf), b(true, false, false, true)},
		{program.OpLe, f(1, nan, 2), f(1, nan, 1), b(true, false, false)},
		{program.OpGt, f(1, nan, 2), f(1, 0, 1), b(false, false, true)},
		{program.OpGe, f(1, nan, 0), f(1, 0, 1), b(true, false, false)},
		{program.OpEq, b(true, false), b(true, true), b(true, false)},
		{program.OpNe, b(true, false), b(true, true), b(false, true)},
		{program.OpLt, i(-1, 1), i(1, -1), b(true, false)},
		{program.OpLt, u(maxUint, 1), u(1, maxUint), b(false, true)},
		{program.OpGe, u(maxUint, 1), u(1, 1), b(true, true)},
	}
	for _, c := range cases {
		t.Run(c.op.String()+"/"+c.x.Type.DType.String(), func(t *testing.T) {
			equal(t, apply(t, c.op, program.Attr{}, program.Type{}, c.x, c.y), c.want)
		})
	}
}

func TestClamp(t *testing.T) {
	bounds := func(lo, hi float64) (reference.Tensor, reference.Tensor) {
		return reference.Float(lo), reference.Float(hi)
	}
	lo, hi := bounds(-1, 2.5)
	equal(t, apply(t, program.OpClamp, program.Attr{}, program.Type{},
		f(-3, -1, 0.5, 2.5, 7, inf, -inf, nan, tiny), lo, hi),
		f(-1, -1, 0.5, 2.5, 2.5, 2.5, -1, nan, tiny))
	equal(t, apply(t, program.OpClamp, program.Attr{}, program.Type{}, reference.Float(9), lo, hi),
		reference.Float(2.5))
	lo, hi = bounds(-inf, inf)
	equal(t, apply(t, program.OpClamp, program.Attr{}, program.Type{}, f(-inf, 3, inf, nan), lo, hi),
		f(-inf, 3, inf, nan))
	lo, hi = bounds(4, 4)
	equal(t, apply(t, program.OpClamp, program.Attr{}, program.Type{}, f(3, 4, 5), lo, hi), f(4, 4, 4))
}

func TestElementwiseShapes(t *testing.T) {
	row := reference.Floats([]float64{1, 2, 3}, 1, 3)
	col := reference.Floats([]float64{10, 20}, 2, 1)
	sum := []float64{11, 12, 13, 21, 22, 23}
	equal(t, apply(t, program.OpAdd, program.Attr{}, program.Type{}, row, col),
		reference.Floats(sum, 2, 3))
	equal(t, apply(t, program.OpSub, program.Attr{}, program.Type{}, reference.Float(1), row),
		reference.Floats([]float64{0, -1, -2}, 1, 3))
	equal(t, apply(t, program.OpSelect, program.Attr{}, program.Type{},
		reference.Bools([]bool{true, false}, 2, 1), row, reference.Float(nan)),
		reference.Floats([]float64{1, 2, 3, nan, nan, nan}, 2, 3))
	equal(t, apply(t, program.OpSelect, program.Attr{}, program.Type{}, reference.Bool(true), i(1, 2),
		i(3, 4)), i(1, 2))
	equal(t, apply(t, program.OpSelect, program.Attr{}, program.Type{}, b(true, false),
		b(false, false), b(true, true)), b(false, true))
}

func TestConvert(t *testing.T) {
	cases := []struct{ x, want reference.Tensor }{
		{f(1.9, -1.9, 0.5, -1<<31), i(1, -1, 0, math.MinInt32)},
		{f(1.9, 1<<32-1, 0), u(1, math.MaxUint32, 0)},
		{f(0, negZero, 0.1, nan, -inf), b(false, false, true, true, true)},
		{f(1, nan), f(1, nan)},
		{i(-1, 7), f(-1, 7)},
		{i(-1, 7), u(math.MaxUint32, 7)},
		{i(-1, 0), b(true, false)},
		{u(math.MaxUint32, 7), i(-1, 7)},
		{u(math.MaxUint32, 7), f(math.MaxUint32, 7)},
		{u(1<<31, 0), b(true, false)},
		{b(true, false), f(1, 0)},
		{b(true, false), i(1, 0)},
		{b(true, false), u(1, 0)},
		{b(true, false), b(true, false)},
	}
	for _, c := range cases {
		t.Run(c.x.Type.DType.String()+"/"+c.want.Type.DType.String(), func(t *testing.T) {
			equal(t, apply(t, program.OpConvert, program.Attr{}, program.Type{DType: c.want.Type.DType},
				c.x), c.want)
		})
	}
}

// TestUndefinedResultsDoNotPanic checks results that the table leaves undefined.
func TestUndefinedResultsDoNotPanic(t *testing.T) {
	for _, to := range []program.DType{program.Int, program.Uint} {
		got := apply(t, program.OpConvert, program.Attr{}, program.Type{DType: to},
			f(nan, inf, -inf, 1e30, -1e30))
		if err := rerun(got); err != nil {
			t.Errorf("convert to %s leaves its range: %v", to, err)
		}
	}
	apply(t, program.OpShl, program.Attr{}, program.Type{}, i(1, 1), i(-1, 99))
	apply(t, program.OpShr, program.Attr{}, program.Type{}, u(1, 1), u(1<<31, 99))
	apply(t, program.OpLdexp, program.Attr{}, program.Type{}, f(1, 1, 1), f(inf, -inf, 0.5))
}

// rerun passes x to a program, whose input check finds elements out of range.
func rerun(x reference.Tensor) error {
	b := program.NewBuilder("identity")
	b.Output("y", b.Input("x", x.Type))
	p, err := b.Build()
	if err == nil {
		_, err = reference.RunArgs(p, x)
	}
	return err
}

func TestBitcast(t *testing.T) {
	cases := []struct{ x, want reference.Tensor }{
		{f(1, -2, negZero, inf, 0.1), u(0x3F800000, 0xC0000000, 0x80000000, 0x7F800000, 0x3DCCCCCD)},
		{f(1, negZero), i(0x3F800000, math.MinInt32)},
		{u(0x3F800000, 0x7F800000, 1), f(1, inf, tiny)},
		{i(-1, 0x40000000), f(nan, 2)},
		{i(-1, 5), u(math.MaxUint32, 5)},
		{u(math.MaxUint32, 5), i(-1, 5)},
		{i(-1, 5), i(-1, 5)},
		{f(0.1, 1e300), f(float64(float32(0.1)), inf)},
	}
	for _, c := range cases {
		t.Run(c.x.Type.DType.String()+"/"+c.want.Type.DType.String(), func(t *testing.T) {
			equal(t, apply(t, program.OpBitcast, program.Attr{}, program.Type{DType: c.want.Type.DType},
				c.x), c.want)
		})
	}
}
