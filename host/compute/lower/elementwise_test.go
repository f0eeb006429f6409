package lower_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

var (
	inf  = math.Inf(1)
	nan  = math.NaN()
	neg0 = math.Copysign(0, -1)
)

// specials are floats at which implementations often fail: zeros, subnormal numbers, infinities,
// NaN of both signs, extremes, ties, and the limits of the domains of vectorized functions. There
// are 47, so that no vector length divides their number.
var specials = []float64{
	0, neg0, 1, -1, 2, -3, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997, 1e-5, -1e-5,
	inf, -inf, nan, math.Copysign(nan, -1), math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126, 0x1.8p-128,
	0x1.fffffcp-127,
	0x1p-140, 4194303.5, 4194304.5, -4194303.5, 8388607.5, -8388608, 16777215, 33554432, 1e30, -1e30,
	88.5, -88.5, 89, -95, 100, -104, 9, -9, 0.7853982,
}

// integers are used as ints and, modulo 2³², as uints.
var integers = []int64{0, 1, -1, 2, -2, 3, 7, -7, 31, 32, 1 << 15, 1 << 24, 1<<24 + 1, 1<<31 - 1,
	-1 << 31, -1<<31 + 1, 12345, -54321, 0x55555555}

// operand returns a tensor of the special values of an element type, repeated as often as needed,
// each repetition shifted by one.
func operand(d program.DType, shape ...int) reference.Tensor {
	x := reference.Tensor{Type: program.Type{DType: d, Shape: shape}}
	for i := range int(x.Type.Size()) {
		at := func(n int) int { return (i + i/n) % n }
		switch d {
		case program.Float:
			x.Floats = append(x.Floats, specials[at(len(specials))])
		case program.Int:
			x.Ints = append(x.Ints, integers[at(len(integers))])
		case program.Uint:
			x.Ints = append(x.Ints, integers[at(len(integers))]&math.MaxUint32)
		default:
			x.Ints = append(x.Ints, int64(i%5*i%3&1))
		}
	}
	return x
}

func dtypesOf(info program.OpInfo) []program.DType {
	var out []program.DType
	for _, d := range []program.DType{program.Float, program.Int, program.Uint, program.Bool} {
		for word := range strings.SplitSeq(info.Operands, ", ") {
			if word == d.String() {
				out = append(out, d)
			}
		}
	}
	return out
}

// approximate lists the operations that are not correctly rounded, with the errors of the device's
// functions. A unit in the last place of binary32 is a relative error of 6e-8 to 1.2e-7.
var approximate = map[program.Op]tolerance{
	program.OpExp:   {rel: 5e-7}, // the square of a function with an error of 1 ulp
	program.OpExpm1: {rel: 1e-7},
	program.OpLog:   {rel: 1e-7},
	program.OpLog1p: {rel: 1e-7},
	program.OpTanh:  {rel: 3e-7}, // two roundings after expm1
	program.OpPow:   {rel: 1e-7},
}

func TestUnary(t *testing.T) {
	for _, info := range program.Ops() {
		if info.Class != program.ClassUnary {
			continue
		}
		for _, d := range dtypesOf(info) {
			for _, shape := range [][]int{{}, {1}, {47}, {1, 1}, {3, 5, 7}, {2048, 9}} {
				t.Run(fmt.Sprint(info.Name, " ", d, shape), func(t *testing.T) {
					x := operand(d, shape...)
					p := build(t, func(b *program.Builder) {
						b.Output("y", b.Apply(info.Op, program.Attr{}, program.Type{}, b.Input("x", x.Type)))
					})
					inputs := map[string]reference.Tensor{"x": x}
					want, err := reference.Run32(p, inputs)
					if err != nil {
						t.Fatal(err)
					}
					tol := approximate[info.Op]
					if tol.rel > 0 {
						tol.abs = math.SmallestNonzeroFloat32
					}
					compare(t, info.Name, tol, run(t, p, inputs)["y"], want["y"], func(i int) string {
						return fmt.Sprintf(" (%v)", x.Float64s()[i])
					})
				})
			}
		}
	}
}

// patterns are pairs of shapes that elementwise operations accept.
var patterns = [][2][]int{
	{{}, {}}, {{1}, {1}}, {{}, {47}}, {{47}, {}}, {{1, 1}, {3, 17}}, {{3, 17}, {1, 1}}, {{1}, {}},
	{{}, {1, 1}},
	{{23}, {23}}, {{2, 23}, {2, 23}}, {{2, 23}, {2, 1}}, {{2, 1}, {2, 23}}, {{47, 47}, {47, 47}},
	{{47, 1}, {1, 47}}, {{1, 47}, {47, 1}}, {{47, 1}, {47, 48}}, {{47, 48}, {47, 1}},
	{{1, 49}, {47, 49}}, {{47, 49}, {1, 49}}, {{3, 1, 17}, {1, 5, 17}}, {{3, 1, 17}, {3, 5, 17}},
	{{3, 5, 17}, {3, 1, 17}},
	{{1, 5, 1}, {3, 1, 17}}, {{3, 5, 1}, {3, 5, 16}}, {{1, 5, 16}, {3, 5, 16}},
	{{4, 1, 1}, {4, 3, 33}},
}

func TestBinary(t *testing.T) {
	for _, info := range program.Ops() {
		if info.Class != program.ClassBinary && info.Class != program.ClassCompare {
			continue
		}
		for _, d := range dtypesOf(info) {
			for _, shapes := range patterns {
				t.Run(fmt.Sprint(info.Name, " ", d, shapes),
					func(t *testing.T) { testBinary(t, info, d, shapes) })
			}
		}
	}
}

func testBinary(t *testing.T, info program.OpInfo, d program.DType, shapes [2][]int) {
	x, y := operand(d, shapes[0]...), secondOperand(info.Op, d, shapes[1])
	p := build(t, func(b *program.Builder) {
		u, v := b.Input("x", x.Type), b.Input("y", y.Type)
		b.Output("z", b.Apply(info.Op, program.Attr{}, program.Type{}, u, v))
	})
	inputs := map[string]reference.Tensor{"x": x, "y": y}
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	out := want["z"]
	describe := func(i int) string {
		return fmt.Sprintf(" (%v, %v)", at(x, out.Type.Shape, i), at(y, out.Type.Shape, i))
	}
	compare(t, info.Name, approximate[info.Op], run(t, p, inputs)["z"], out, describe)
}

// secondOperand returns the values of operand in reverse order, so that all kinds of values meet,
// and keeps exponents and shift counts in their defined range.
func secondOperand(op program.Op, d program.DType, shape []int) reference.Tensor {
	y := operand(d, shape...)
	slices.Reverse(y.Floats)
	slices.Reverse(y.Ints)
	for i := range y.Len() {
		switch op {
		case program.OpShl, program.OpShr:
			y.Ints[i] = int64(i * 7 % 32)
		case program.OpLdexp:
			y.Floats[i] = float64(i*37%601 - 300)
			if i%50 == 49 {
				y.Floats[i] = nan
			}
		}
	}
	return y
}

// at returns the element of x that belongs to element i of a result of the given shape.
func at(x reference.Tensor, shape []int, i int) float64 {
	index, stride := 0, 1
	for a := len(x.Type.Shape) - 1; a >= 0; a-- {
		index += i % shape[a] % x.Type.Shape[a] * stride
		stride *= x.Type.Shape[a]
		i /= shape[a]
	}
	return x.Float64s()[index]
}

// TestLdexpAllExponents combines every x with every exponent. A product of powers could round
// subnormal results twice.
func TestLdexpAllExponents(t *testing.T) {
	values := append([]float64{0x1.fffffep0, 0x1.000002p0, 0x1.400002p3, 0x1.bffffep-100, 0x1.8p-149,
		0x1.4p-127, 0x1.555556p127}, specials...)
	exponents := make([]float64, 601)
	for i := range exponents {
		exponents[i] = float64(i - 300)
	}
	x, n := reference.Floats(values, len(values), 1), reference.Floats(exponents, 1, len(exponents))
	// limits of the exponents
	for _, limit := range []float64{126, 127, 149, 300} {
		p := build(t, func(b *program.Builder) {
			v, e := b.Input("x", x.Type), b.Input("n", n.Type)
			b.Output("y", v.Ldexp(e.Clip(-limit, min(limit, 127))))
			b.Output("z", v.Ldexp(e))
		})
		inputs := map[string]reference.Tensor{"x": x, "n": n}
		check(t, tolerance{}, p, inputs)
	}
}

func TestMaxOfConstants(t *testing.T) {
	x := operand(program.Float, 47, 3)
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		b.Output("both", v.Max(b.Const(-2)).Min(b.Const(1.5)))
		b.Output("low", b.Const(-2).Max(v))
		b.Output("nan", v.Min(b.Const(nan)))
		b.Output("abs", v.Abs().Max(b.Const(1)))
	})
	check(t, tolerance{}, p, map[string]reference.Tensor{"x": x})
}

func TestSelect(t *testing.T) {
	for _, d := range []program.DType{program.Float, program.Int, program.Uint, program.Bool} {
		for _, s := range [][3][]int{
			{{}, {}, {}}, {{}, {3, 17}, {3, 17}}, {{3, 17}, {}, {}}, {{3, 17}, {3, 17}, {}},
			{{3, 17}, {3, 17}, {3, 17}},
			{{3, 1}, {3, 17}, {}}, {{3, 1}, {3, 17}, {3, 1}}, {{1, 17}, {3, 17}, {3, 1}},
			{{3, 17}, {3, 1}, {1, 17}}, {{3, 1}, {}, {1, 17}},
			{{3, 1}, {3, 1}, {}}, {{2, 1, 5}, {2, 3, 1}, {1, 3, 5}}, {{1, 1}, {4, 40}, {4, 40}},
			{{130, 130}, {130, 130}, {}},
		} {
			c, x, y := operand(program.Bool, s[0]...), operand(d, s[1]...), operand(d, s[2]...)
			p := build(t, func(b *program.Builder) {
				b.Output("z", b.Input("c", c.Type).Select(b.Input("x", x.Type), b.Input("y", y.Type)))
			})
			check(t, tolerance{}, p, map[string]reference.Tensor{"c": c, "x": x, "y": y})
		}
	}
}

func TestConvertAndBitcast(t *testing.T) {
	all := []program.DType{program.Float, program.Int, program.Uint, program.Bool}
	for _, from := range all {
		x := operand(from, 3, 57)
		inside := x.Clone()
		for i, v := range inside.Floats { // outside the range the result is undefined
			if math.IsNaN(v) || v < 0 || v >= 1<<31 {
				inside.Floats[i] = float64(float32(i)) + 0.75
			}
		}
		for _, to := range all {
			source := x
			if from == program.Float && (to == program.Int || to == program.Uint) {
				source = inside
			}
			p := build(t, func(b *program.Builder) { b.Output("y", b.Input("x", x.Type).Convert(to)) })
			check(t, tolerance{}, p, map[string]reference.Tensor{"x": source})
			if from == program.Bool || to == program.Bool {
				continue
			}
			p = build(t, func(b *program.Builder) { b.Output("y", b.Input("x", x.Type).Bitcast(to)) })
			check(t, tolerance{}, p, map[string]reference.Tensor{"x": x})
		}
	}
	negative := reference.Floats([]float64{-0.5, -1, -1.5, -2147483648, -7.99}, 5)
	p := build(t, func(b *program.Builder) {
		b.Output("y", b.Input("x", negative.Type).Convert(program.Int))
	})
	check(t, tolerance{}, p, map[string]reference.Tensor{"x": negative})
}

// TestAbsOfNegativeZero checks that |−0| is +0; only a quotient shows the sign.
func TestAbsOfNegativeZero(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(20))
		b.Output("y", b.Const(1).Div(x.Abs()))
	})
	x := make([]float64, 20)
	for i := range x {
		x[i] = math.Copysign(0, -1)
	}
	for i, v := range run(t, p,
		map[string]reference.Tensor{"x": reference.Floats(x, 20)})["y"].Floats {
		if !math.IsInf(v, 1) {
			t.Errorf("element %d: 1/|−0| is %v", i, v)
		}
	}
}

// bounds are the limits of a clamp, which may return a number between them for NaN.
type bounds struct{ lo, hi float64 }

// checkClamped compares the device with the reference implementation. Where the latter has NaN, an
// output with bounds is NaN or within them.
func checkClamped(
	t *testing.T, p *program.Program, inputs map[string]reference.Tensor, limits map[string]bounds,
) {
	t.Helper()
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range run(t, p, inputs) {
		limit, ok := limits[name]
		for i, v := range want[name].Floats {
			if g := got.Floats[i]; ok && math.IsNaN(v) && g >= limit.lo && g <= limit.hi {
				got.Floats[i] = v
			}
		}
		compare(t, name, tolerance{}, got, want[name], nil)
	}
}

// TestClamp has lengths for which NaN occurs in the backend's vector loops and in the remainders.
func TestClamp(t *testing.T) {
	for _, shape := range [][]int{{}, {1}, {47}, {1, 1}, {3, 5, 7}, {2048, 9}} {
		x := operand(program.Float, shape...)
		for _, limit := range []bounds{{-2, 1.5}, {0.1, 0.1}, {math.Inf(-1), 3},
			{-1e-40, math.MaxFloat32}, {math.Inf(-1), math.Inf(1)}} {
			rounded := bounds{float64(float32(limit.lo)), float64(float32(limit.hi))}
			p := build(t, func(b *program.Builder) {
				v, lo, hi := b.Input("x", x.Type), b.Input("lo", program.FloatType()),
					b.Input("hi", program.FloatType())
				b.Output("constant", v.Clip(limit.lo, limit.hi))
				b.Output("given", v.Clamp(lo, hi))
			})
			inputs := map[string]reference.Tensor{"x": x, "lo": reference.Float(rounded.lo),
				"hi": reference.Float(rounded.hi)}
			t.Run(fmt.Sprint(shape, limit), func(t *testing.T) {
				checkClamped(t, p, inputs, map[string]bounds{"constant": rounded, "given": rounded})
			})
		}
	}
}

// TestClampPoisoned checks that the clamp of a NaN does not show where NaN is added and in masks.
func TestClampPoisoned(t *testing.T) {
	x := operand(program.Float, 47, 9)
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		poison := v.Sub(v) // zero for finite numbers, NaN for others
		q := v.Round().Clip(-8, 7)
		b.Output("value", q.Add(poison))
		b.Output("near", v.Sub(q).Abs().Le(b.Const(0.5)))
		b.Output("inside", v.Eq(v.Clip(-8, 7)))
	})
	check(t, tolerance{}, p, map[string]reference.Tensor{"x": x})
}

// TestRounding checks rounding alone, before and after clips, and of a value that is used twice.
func TestRounding(t *testing.T) {
	data := append([]float64(nil), specials...)
	for i := range 200 {
		data = append(data, float64(i-100)/2, math.Nextafter(float64(i-100)/2, inf),
			float64(i)*20971.525-2e6)
	}
	x := reference.Floats(data, len(data))
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		b.Output("round", v.Round())
		b.Output("clipped", v.Scale(0.5).Round().Clip(-8, 7))
		b.Output("strict", v.Scale(0.5).Round().Max(b.Const(-8)).Min(b.Const(7)))
		b.Output("unordered", v.Scale(0.25).Round().Min(b.Const(7)).Max(b.Const(-8)))
		b.Output("fraction", v.Scale(3).Round().Clip(-1.5, 2.5))
		b.Output("before", v.Clip(-4194304, 4194304).Round())
		b.Output("twice", v.Scale(0.75).Round().Clip(-20, 20).Clip(-8, 30))
		r := v.Scale(5).Round()
		b.Output("both", r.Clip(-8, 7).Add(r))
		b.Output("half", v.Scale(7).Round().Max(b.Const(0)))
	})
	checkClamped(t, p, map[string]reference.Tensor{"x": x}, map[string]bounds{
		"clipped": {-8, 7}, "fraction": {-1.5, 2.5}, "before": {-4194304, 4194304}, "twice": {-8, 20},
	})
}

// TestSortColumns checks that columns are moved unchanged, with special values in them and in keys.
func TestSortColumns(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), math.NaN(), 1, math.Inf(-1), 1, math.Inf(1),
		math.NaN(), -2, 1e-30, 0}
	for _, shape := range [][]int{{1, 1}, {3, 2}, {5, 11}, {1, 64}, {2, 3, 7, 13}, {4, 1, 1}} {
		last := len(shape) - 1
		x, keys := normal(1, shape...),
			reference.Tensor{Type: program.FloatType(append(append([]int{}, shape[:last-1]...),
				shape[last])...)}
		for i := range int(keys.Type.Size()) {
			keys.Floats = append(keys.Floats, special[i*i%len(special)])
		}
		for i := range x.Floats {
			x.Floats[i] = float64(float32(x.Floats[i]))
			if i%7 == 3 {
				x.Floats[i] = special[i%len(special)]
			}
		}
		p := build(t, func(b *program.Builder) {
			x, keys := b.Input("x", x.Type), b.Input("keys", keys.Type)
			b.Output("special", x.SortColumns(keys))
			b.Output("itself", x.SortColumns(x.ReduceMin(last-1)))
		})
		check(t, tolerance{}, p, map[string]reference.Tensor{"x": x, "keys": keys})
	}
}
