package graphexec_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/graphexec"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
)

type node = graph.Node

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A tensor has elements and dimensions.
type tensor struct {
	data any
	dims []int
}

// of returns a tensor; without dimensions, it has one axis.
func of[T any](data []T, dims ...int) tensor {
	if dims == nil {
		dims = []int{len(data)}
	}
	return tensor{data, dims}
}

func scalar[T any](v T) tensor { return tensor{[]T{v}, nil} }

func (x tensor) shape(t testing.TB) shapes.Shape {
	for d := shapes.Bool; d <= shapes.Float64; d++ {
		if reflect.TypeOf(x.data).Elem() == d.GoType() {
			return shapes.Make(d, x.dims...)
		}
	}
	t.Fatalf("elements of a %T", x.data)
	return shapes.Shape{}
}

// program returns a graph with parameters of the given shapes.
func program(build func(in []*node) []*node, list ...shapes.Shape) *graph.Graph {
	g := graph.New("test", 1)
	in := make([]*node, len(list))
	for i, s := range list {
		in[i] = graph.Parameter(g, fmt.Sprint("x", i), s)
	}
	g.Return(build(in))
	return g
}

// compute runs a program twice, since it keeps its memory, and returns the results.
func compute(t testing.TB, build func(in []*node) []*node, in ...tensor) []any {
	t.Helper()
	g := program(build, lists.Map(in, func(x tensor) shapes.Shape { return x.shape(t) })...)
	run, err := graphexec.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	data := lists.Map(in, func(x tensor) any { return x.data })
	first, err := run(data)
	if err != nil {
		t.Fatal(err)
	}
	second, err := run(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if !same(first[i], second[i]) {
			t.Errorf("result %d is first %v, then %v", i, first[i], second[i])
		}
		if got := reflect.ValueOf(first[i]).Len(); got != g.Main().Results[i].Shape().Size() {
			t.Errorf("result %d has %d elements", i, got)
		}
	}
	return first
}

// same reports whether two slices have the same elements; all NaN are the same, and 0 is −0.
func same(x, y any) bool {
	a, b := reflect.ValueOf(x), reflect.ValueOf(y)
	if a.Type() != b.Type() || a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		v, w := a.Index(i).Interface(), b.Index(i).Interface()
		if v != w && !(v != v && w != w) {
			return false
		}
	}
	return true
}

var (
	nan  = float32(math.NaN())
	inf  = float32(math.Inf(1))
	tiny = math.Float32frombits(1)
)

// bf and half return numbers in 16 bits.
func bf(list ...float32) []shapes.BFloat { return lists.Map(list, shapes.ToBFloat) }
func half(list ...float32) []shapes.Half {
	return lists.Map(list, func(v float32) shapes.Half { return shapes.Half(halffloat.ToHalf(v)) })
}

func one(f func(x *node) *node) func(in []*node) *node {
	return func(in []*node) *node { return f(in[0]) }
}

func two(f func(x, y *node) *node) func(in []*node) *node {
	return func(in []*node) *node { return f(in[0], in[1]) }
}

func to(d shapes.DType) func(in []*node) *node {
	return func(in []*node) *node { return graph.ConvertDType(in[0], d) }
}

// TestOperations checks operations on small tensors.
func TestOperations(t *testing.T) {
	f := func(v ...float32) []float32 { return v }
	i := func(v ...int32) []int32 { return v }
	u := func(v ...uint32) []uint32 { return v }
	b := func(v ...bool) []bool { return v }
	const least, most = math.MinInt32, math.MaxInt32
	x, y := f(1, nan, 2, -inf, 5), f(2, 1, nan, inf, 5)
	for _, c := range []struct {
		name  string
		build func(in []*node) *node
		in    []tensor
		want  any
	}{
		{"add", two(graph.Add), []tensor{of(x), of(y)}, f(3, nan, nan, nan, 10)},
		{"add bytes", two(graph.Add), []tensor{of([]int8{127, -128}), of([]int8{1, -1})},
			[]int8{-128, 127}},
		{"add bools", two(graph.Add), []tensor{of(b(true, true, false)), of(b(true, false, false))},
			b(true, true, false)},
		{"add bfloat16", two(graph.Add), []tensor{of(bf(1, 1, 256)), of(bf(1.0/256, 3.0/256, 1))},
			bf(1, 1+1.0/64, 256)},
		{"add float16", two(graph.Add), []tensor{of(half(65504, 2048)), of(half(65504, 1))},
			half(inf, 2048)},
		{"subnormal", two(graph.Sub), []tensor{of(f(3 * tiny)), of(f(tiny))}, f(2 * tiny)},
		{"multiply", two(graph.Mul), []tensor{of(x), of(y)}, f(2, nan, nan, -inf, 25)},
		{"multiply integers", two(graph.Mul), []tensor{of(i(1<<20, -3)), of(i(1<<12+1, 5))},
			i(1<<20, -15)},
		{"divide", two(graph.Div), []tensor{of(f(1, -1, 0, 7)), of(f(0, 0, 0, 2))},
			f(inf, -inf, nan, 3.5)},
		{"divide integers", two(graph.Div), []tensor{of(i(7, -7, 5, least)), of(i(2, 2, 0, -1))},
			i(3, -3, -1, least)},
		{"divide unsigned", two(graph.Div), []tensor{of(u(7, 1<<31)), of(u(0, 2))},
			u(1<<32-1, 1<<30)},
		{"maximum", two(graph.Max), []tensor{of(x), of(y)}, f(2, nan, nan, inf, 5)},
		{"minimum", two(graph.Min), []tensor{of(x), of(y)}, f(1, nan, nan, -inf, 5)},
		{"maximum bfloat16", two(graph.Max), []tensor{of(bf(nan, -1)), of(bf(0, -2))}, bf(nan, -1)},
		{"minimum unsigned", two(graph.Min), []tensor{of(u(1<<31, 3)), of(u(1, 5))}, u(1, 3)},
		{"minimum bools", two(graph.Min), []tensor{of(b(true, true)), of(b(true, false))},
			b(true, false)},
		{"power", two(graph.Pow), []tensor{of(f(2, -2, -8, 0)), of(f(-1, 3, 1.0/3, 0))},
			f(0.5, -8, nan, 1)},
		{"power of integers", two(graph.Pow), []tensor{of(i(3, -2, 2, -1, 1)), of(i(4, 3, -1, -3, -2))},
			i(81, -8, 0, -1, 1)},
		{"and", two(graph.And), []tensor{of(u(12, 1<<31)), of(u(10, 1<<31))}, u(8, 1<<31)},
		{"or", two(graph.Or), []tensor{of(b(true, false)), of(b(false, false))}, b(true, false)},
		{"xor", two(graph.Xor), []tensor{of(b(true, true)), of(b(true, false))}, b(false, true)},
		{"xor bytes", two(graph.Xor), []tensor{of([]int8{-1}), of([]int8{1})}, []int8{-2}},
		{"not", one(graph.Not), []tensor{of(b(true, false))}, b(false, true)},
		{"not bytes", one(graph.Not), []tensor{of([]uint8{1})}, []uint8{254}},
		{"shift left", two(graph.ShiftLeft), []tensor{of(u(1, 1, 1)), of(u(31, 32, 1<<31))},
			u(1<<31, 0, 0)},
		{"shift left by a negative number", two(graph.ShiftLeft), []tensor{of(i(1)), of(i(-1))}, i(0)},
		{"shift bytes", two(graph.ShiftLeft), []tensor{of([]uint8{255}), of([]uint8{8})}, []uint8{0}},
		{"shift right", two(graph.ShiftRightLogical), []tensor{of(i(-1, -1, -1)), of(i(1, 0, 32))},
			i(most, -1, 0)},
		{"shift sign", two(graph.ShiftRightArithmetic), []tensor{of(i(-8, -8, 8)), of(i(1, 32, 40))},
			i(-4, -1, 0)},
		{"shift unsigned sign", two(graph.ShiftRightArithmetic), []tensor{of(u(1 << 31)), of(u(31))},
			u(1<<32 - 1)},
		{"negate floats", one(graph.Neg), []tensor{of(f(1, -inf, nan))}, f(-1, inf, nan)},
		{"negate", one(graph.Neg), []tensor{of(i(1, least))}, i(-1, least)},
		{"abs", one(graph.Abs), []tensor{of(f(-1, nan, -inf, -tiny))}, f(1, nan, inf, tiny)},
		{"abs of integers", one(graph.Abs), []tensor{of(i(-3, 3, least))}, i(3, 3, least)},
		{"sign", one(graph.Sign), []tensor{of(f(-tiny, 0, inf, nan))}, f(-1, 0, 1, nan)},
		{"sign of integers", one(graph.Sign), []tensor{of(i(-5, 0, 7))}, i(-1, 0, 1)},
		{"sign of unsigned", one(graph.Sign), []tensor{of(u(1<<31, 0))}, u(1, 0)},
		{"sqrt", one(graph.Sqrt), []tensor{of(f(2, -1, inf))}, f(math.Sqrt2, nan, inf)},
		{"exponential", one(graph.Exp), []tensor{of(f(1, 100, -inf, nan, -100))},
			f(math.E, inf, 0, nan, float32(math.Exp(-100)))},
		{"exponential bfloat16", one(graph.Exp), []tensor{of(bf(1))}, bf(math.E)},
		{"exponential minus one", one(graph.Expm1), []tensor{of(f(1e-10, 1))}, f(1e-10, math.E-1)},
		{"log", one(graph.Log), []tensor{of(f(0, 1, -1, inf))}, f(-inf, 0, nan, inf)},
		{"log plus one", one(graph.Log1p), []tensor{of(f(1e-10, -1))}, f(1e-10, -inf)},
		{"tanh", one(graph.Tanh), []tensor{of(f(1e-20, inf, nan))}, f(1e-20, 1, nan)},
		{"sine", one(graph.Sin), []tensor{of(f(0, 1, inf))}, f(0, 0.84147098, nan)},
		{"cosine", one(graph.Cos), []tensor{of(f(0, 1))}, f(1, float32(math.Cos(1)))},
		{"cosine float64", one(graph.Cos), []tensor{of([]float64{1})}, []float64{math.Cos(1)}},
		{"floor", one(graph.Floor), []tensor{of(f(-1.5, 1.5, nan, 1e30))}, f(-2, 1, nan, 1e30)},
		{"round", one(graph.Round), []tensor{of(f(0.5, 1.5, -2.5, 2.6))}, f(0, 2, -2, 3)},
		{"leading zeros", one(graph.CountLeadingZeros), []tensor{of(u(0, 1, 1<<31))}, u(32, 31, 0)},
		{"leading zeros of bytes", one(graph.CountLeadingZeros), []tensor{of([]int8{0, 1, -1})},
			[]int8{8, 7, 0}},
		{"finite", one(graph.IsFinite), []tensor{of(f(1, inf, nan))}, b(true, false, false)},
		{"finite float16", one(graph.IsFinite), []tensor{of(half(1, inf))}, b(true, false)},
		{"equal", two(graph.Equal), []tensor{of(x), of(y)}, b(false, false, false, false, true)},
		{"not equal", two(graph.NotEqual), []tensor{of(x), of(y)}, b(true, true, true, true, false)},
		{"less", two(graph.LessThan), []tensor{of(x), of(y)}, b(true, false, false, true, false)},
		{"less or equal", two(graph.LessOrEqual), []tensor{of(x), of(y)},
			b(true, false, false, true, true)},
		{"greater", two(graph.GreaterThan), []tensor{of(y), of(x)}, b(true, false, false, true, false)},
		{"greater or equal", two(graph.GreaterOrEqual), []tensor{of(bf(y...)), of(bf(x...))},
			b(true, false, false, true, true)},
		{"less unsigned", two(graph.LessThan), []tensor{of(u(1)), of(u(1 << 31))}, b(true)},
		{"less signed", two(graph.LessThan), []tensor{of(i(1)), of(i(least))}, b(false)},
		{"equal bools", two(graph.Equal), []tensor{of(b(true, false)), of(b(false, false))},
			b(false, true)},
		{"greater bools", two(graph.GreaterThan), []tensor{of(b(true, true)), of(b(false, true))},
			b(true, false)},
		{"float to integer", to(shapes.Int32), []tensor{of(f(-1.9, 1.9, 3e9, -inf, nan))},
			i(-1, 1, most, least, 0)},
		{"float to byte", to(shapes.Int8), []tensor{of(f(-128.9, 127.5, 300))}, []int8{-128, 127, 127}},
		{"float to unsigned", to(shapes.Uint32), []tensor{of(f(-0.5, -5, 1<<31, 5e9))},
			u(0, 0, 1<<31, 1<<32-1)},
		{"integer to byte", to(shapes.Int8), []tensor{of(i(300, -129, 5))}, []int8{44, 127, 5}},
		{"integer to unsigned", to(shapes.Uint32), []tensor{of(i(-1, least))}, u(1<<32-1, 1<<31)},
		{"unsigned to integer", to(shapes.Int32), []tensor{of(u(1<<32-1, 7))}, i(-1, 7)},
		{"integer to float", to(shapes.Float32), []tensor{of(i(1<<24+1, -5))}, f(1<<24, -5)},
		{"float to bool", to(shapes.Bool), []tensor{of(f(0, tiny, nan))}, b(false, true, true)},
		{"bool to float", to(shapes.Float32), []tensor{of(b(true, false))}, f(1, 0)},
		{"float to bfloat16", to(shapes.BFloat16), []tensor{of(f(1+1.0/256, 1+3.0/256, nan, 3.4e38))},
			bf(1, 1+1.0/64, nan, inf)},
		{"bfloat16 to float", to(shapes.Float32), []tensor{of(bf(1.5, nan, -inf))}, f(1.5, nan, -inf)},
		{"float16 to bfloat16", to(shapes.BFloat16), []tensor{of(half(1.5, 65504))}, bf(1.5, 65536)},
		{"float to float64", to(shapes.Float64), []tensor{of(f(0.1))}, []float64{float64(float32(0.1))}},
		{"float64 to float", to(shapes.Float32), []tensor{of([]float64{0.1, 1e39})}, f(0.1, inf)},
		{"bits", func(in []*node) *node { return graph.Bitcast(in[0], shapes.Uint32) },
			[]tensor{of(f(1, -0.5))}, u(0x3f800000, 0xbf000000)},
		{"select", func(in []*node) *node { return graph.Where(in[0], in[1], in[2]) },
			[]tensor{of(b(true, false)), of(f(1, 2)), of(f(3, 4))}, f(1, 4)},
		{"select all", func(in []*node) *node { return graph.Where(in[0], in[1], in[2]) },
			[]tensor{scalar(false), of(bf(1, 2)), of(bf(3, 4))}, bf(3, 4)},
		{"select a scalar", func(in []*node) *node { return graph.Where(in[0], in[1], in[2]) },
			[]tensor{scalar(true), scalar(1.0), scalar(2.0)}, []float64{1}},
		{"iota", func(in []*node) *node {
			return graph.Iota(in[0].Graph(), shapes.Make(shapes.Int32, 2, 3, 2), 1)
		}, []tensor{of(i(0))}, i(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2)},
		{"iota bfloat16", func(in []*node) *node {
			return graph.Iota(in[0].Graph(), shapes.Make(shapes.BFloat16, 3), 0)
		}, []tensor{of(i(0))}, bf(0, 1, 2)},
		{"constant", func(in []*node) *node {
			return graph.Constant(in[0].Graph(), f(1, 2, 3, 4), 2, 2)
		}, []tensor{of(i(0))}, f(1, 2, 3, 4)},
		{"repeated constant", func(in []*node) *node {
			return graph.Constant(in[0].Graph(), b(true), 3)
		}, []tensor{of(i(0))}, b(true, true, true)},
		{"transpose", func(in []*node) *node { return graph.TransposeAllAxes(in[0], 2, 0, 1) },
			[]tensor{of(i(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 2, 2, 3)},
			i(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11)},
		{"broadcast", func(in []*node) *node { return graph.BroadcastToDims(in[0], 2, 3) },
			[]tensor{of(i(1, 2), 2, 1)}, i(1, 1, 1, 2, 2, 2)},
		{"broadcast rows", func(in []*node) *node { return graph.BroadcastToDims(in[0], 2, 3) },
			[]tensor{of([]int8{1, 2, 3}, 1, 3)}, []int8{1, 2, 3, 1, 2, 3}},
		{"broadcast a scalar", func(in []*node) *node { return graph.BroadcastToDims(in[0], 2, 1, 2) },
			[]tensor{scalar(2.5)}, []float64{2.5, 2.5, 2.5, 2.5}},
		{"broadcast to nothing", func(in []*node) *node { return graph.BroadcastToDims(in[0], 2, 0) },
			[]tensor{scalar(2.5)}, []float64{}},
		{"slice", func(in []*node) *node {
			return graph.Slice(in[0], graph.AxisRange(1, 3), graph.AxisRange(0, 4).Stride(3))
		}, []tensor{of(i(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 3, 4)}, i(4, 7, 8, 11)},
		{"concatenate", func(in []*node) *node { return graph.Concatenate(in, 1) },
			[]tensor{of(i(1, 2), 2, 1), of(i(3, 4, 5, 6), 2, 2), of(i(), 2, 0)}, i(1, 3, 4, 2, 5, 6)},
		{"reverse", func(in []*node) *node { return graph.Reverse(in[0], 0, 2) },
			[]tensor{of(i(0, 1, 2, 3, 4, 5, 6, 7), 2, 2, 2)}, i(5, 4, 7, 6, 1, 0, 3, 2)},
		{"pad", func(in []*node) *node { return graph.PadAxis(in[0], in[1], 1, 1, 2) },
			[]tensor{of(i(1, 2, 3, 4), 2, 2), scalar[int32](9)}, i(9, 1, 2, 9, 9, 9, 3, 4, 9, 9)},
		{"negative pad", func(in []*node) *node { return graph.PadAxis(in[0], in[1], 0, -1, -1) },
			[]tensor{of(i(1, 2, 3, 4)), scalar[int32](9)}, i(2, 3)},
		{"argmax", one(graph.ArgMax), []tensor{of(f(1, 3, 3, -inf, -inf, -inf, 1, nan, 2), 3, 3)},
			i(1, 0, 0)},
		{"sum", func(in []*node) *node { return graph.ReduceSum(in[0], 1) },
			[]tensor{of(i(most, 1, 2, 3), 2, 2)}, i(least, 5)},
		{"sum bytes", func(in []*node) *node { return graph.ReduceSum(in[0]) },
			[]tensor{of([]uint8{200, 100})}, []uint8{44}},
		{"sum float64", func(in []*node) *node { return graph.ReduceSum(in[0]) },
			[]tensor{of([]float64{1, 0x1p-52})}, []float64{1 + 0x1p-52}},
		{"sum nothing", func(in []*node) *node { return graph.ReduceSum(in[0], 0) },
			[]tensor{of(f(), 0, 2)}, f(0, 0)},
		{"maximum of all", func(in []*node) *node { return graph.ReduceMax(in[0]) },
			[]tensor{of(f(-3, -2, -1, -4, -5, -6), 2, 3)}, f(-1)},
		{"maximum with NaN", func(in []*node) *node { return graph.ReduceMax(in[0], 1) },
			[]tensor{of(f(1, nan, 2, 3, 4, 2), 2, 3)}, f(nan, 4)},
		{"minimum of columns", func(in []*node) *node { return graph.ReduceMin(in[0], 0) },
			[]tensor{of(bf(1, nan, 2, 3, 4, -inf), 2, 3)}, bf(1, nan, -inf)},
		{"sum bfloat16", func(in []*node) *node { return graph.ReduceSum(in[0]) },
			[]tensor{of(bf(256, 1, 1))}, bf(258)},
		{"product of bytes", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{1}, {0}}, Result: shapes.Int32}.Of(in[0], in[1])
		}, []tensor{of([]int8{-128, -128, 1, 2}, 2, 2), of([]int8{-128, 127, -128, 127}, 2, 2)},
			i(32768, -32512, -384, 381)},
		{"product of many bytes", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{0}, {0}}, Result: shapes.Int32}.Of(in[0], in[0])
		}, []tensor{of(slices.Repeat([]int8{-128}, 1<<18+1))}, i(1 << 14)},
		{"product of integers", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{0}, {0}}, Result: shapes.Int32}.Of(in[0], in[1])
		}, []tensor{of(i(most, 1)), of(i(2, 5))}, i(3)},
		{"product of nothing", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{1}, {0}}, Result: shapes.Float32}.Of(in[0], in[1])
		}, []tensor{of(f(), 2, 0), of(f(), 0, 2)}, f(0, 0, 0, 0)},
		{"product of float64", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{0}, {0}}, Result: shapes.Float64}.Of(in[0], in[0])
		}, []tensor{of([]float64{1, 0x1p-26})}, []float64{1 + 0x1p-52}},
		{"product of bfloat16", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{0}, {0}}, Result: shapes.BFloat16}.Of(in[0], in[1])
		}, []tensor{of(bf(256, 1, 1)), of(bf(1, 1, 1))}, bf(258)},
		{"product with NaN", func(in []*node) *node {
			return graph.Product{Contracted: [2][]int{{1}, {1}}, Result: shapes.Float32}.Of(in[0], in[1])
		}, []tensor{of(f(0, 1, 1, 1), 2, 2), of(f(inf, 1), 1, 2)}, f(nan, inf)},
		{"barrier", func(in []*node) *node { return graph.Barrier(in...)[1] },
			[]tensor{of(i(1)), of(f(2))}, f(2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := compute(t, func(in []*node) []*node { return []*node{c.build(in)} }, c.in...)[0]
			if !same(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestLong checks operations whose elements are divided into parts.
func TestLong(t *testing.T) {
	const n = 1<<17 + 3
	x := random(rand.New(rand.NewPCG(1, 2)), n)
	got := compute(t, func(in []*node) []*node {
		narrow := graph.ConvertDType(in[0], shapes.BFloat16)
		return []*node{graph.Add(in[0], in[0]), graph.Exp(in[0]), graph.Mul(narrow, narrow),
			graph.Where(graph.LessThan(in[0], in[1]), in[0], in[1]), graph.Reverse(in[0], 0)}
	}, of(x), scalar[float32](0))
	for i, v := range x {
		b := shapes.ToBFloat(v).Float32()
		want := []any{v + v, float32(math.Exp(float64(v))), shapes.ToBFloat(b * b), min(v, 0), x[n-1-i]}
		for r, data := range got {
			if g := reflect.ValueOf(data).Index(i).Interface(); g != want[r] {
				t.Fatalf("element %d of result %d is %v, want %v", i, r, g, want[r])
			}
		}
	}
}

func random(r *rand.Rand, n int) []float32 {
	return lists.Make(n, func(int) float32 { return float32(r.NormFloat64()) })
}

// indices calls f with all indices of a tensor, in row-major order.
func indices(dims []int, f func(index []int)) {
	size := shapes.Make(shapes.Bool, dims...).Size()
	for i := range size {
		index := make([]int, len(dims))
		for axis, d := range slices.Backward(dims) {
			index[axis] = i % d
			i /= d
		}
		f(index)
	}
}

// at returns the position of an index.
func at(dims, index []int) int {
	p := 0
	for i, d := range dims {
		p = p*d + index[i]
	}
	return p
}

// TestProducts compares products with sums in float64, for random shapes and orders of axes.
func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	dims := func(n int) []int { return lists.Make(n, func(int) int { return 1 + r.IntN(6) }) }
	for trial := range 200 {
		batch, left, right, inner := dims(r.IntN(3)), dims(r.IntN(3)), dims(r.IntN(3)), dims(r.IntN(3))
		if trial%20 == 0 {
			left, right, inner = []int{70 + r.IntN(99)}, []int{1 + r.IntN(99)}, []int{150 + r.IntN(150)}
		}
		operand := func(free []int) (x tensor, values []float64, axes [3][]int) {
			all := slices.Concat(batch, free, inner)
			order := r.Perm(len(all)) // axis i of the operand is axis order[i] of all
			x.dims = lists.Map(order, func(axis int) int { return all[axis] })
			x.data = random(r, shapes.Make(shapes.Float32, x.dims...).Size())
			place := make([]int, len(all))
			for i, axis := range order {
				place[axis] = i
			}
			if len(free) > 1 && place[len(batch)] > place[len(batch)+1] {
				// The order of free axes is that of the operand: they are swapped.
				a := place[len(batch) : len(batch)+2]
				a[0], a[1] = a[1], a[0]
				all[len(batch)], all[len(batch)+1] = all[len(batch)+1], all[len(batch)]
			}
			indices(all, func(index []int) {
				at := 0
				for i, d := range x.dims {
					at = at*d + index[slices.Index(place, i)]
				}
				values = append(values, float64(x.data.([]float32)[at]))
			})
			n := len(all) - len(inner)
			return x, values, [3][]int{place[:len(batch)], place[len(batch):n], place[n:]}
		}
		x, xs, xAxes := operand(left)
		y, ys, yAxes := operand(right)
		p := graph.Product{Batch: [2][]int{xAxes[0], yAxes[0]},
			Contracted: [2][]int{xAxes[2], yAxes[2]}, Result: shapes.Float32}
		got := compute(t, func(in []*node) []*node { return []*node{p.Of(in[0], in[1])} }, x, y)[0]
		size := func(dims []int) int { return shapes.Make(shapes.Bool, dims...).Size() }
		m, n, k := size(left), size(right), size(inner)
		for i, v := range got.([]float32) {
			b, row, col := i/(m*n), i/n%m, i%n
			want, bound := 0.0, 0.0
			for j := range k {
				term := xs[(b*m+row)*k+j] * ys[(b*n+col)*k+j]
				want, bound = want+term, bound+math.Abs(term)
			}
			if math.Abs(float64(v)-want) > bound*float64(k+1)*0x1p-24 {
				t.Fatalf("%v of %v and %v: element %d is %v, want %v", p, x.dims, y.dims, i, v, want)
			}
		}
	}
}

// TestReductions compares reductions with naive ones, and with themselves on one processor.
func TestReductions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 200 {
		dims := lists.Make(1+r.IntN(4), func(int) int { return 1 + r.IntN(7) })
		if trial%10 == 0 {
			dims = []int{50 + r.IntN(200), 1 + r.IntN(3), 300 + r.IntN(300)}
		}
		x := of(random(r, shapes.Make(shapes.Float32, dims...).Size()), dims...)
		axes := r.Perm(len(dims))[:1+r.IntN(len(dims))]
		reduce := func(in []*node) []*node {
			return []*node{graph.ReduceSum(in[0], axes...), graph.ReduceMax(in[0], axes...),
				graph.ReduceMin(in[0], axes...)}
		}
		got := compute(t, reduce, x)
		processors := runtime.GOMAXPROCS(1)
		alone := compute(t, reduce, x)
		runtime.GOMAXPROCS(processors)

		kept := slices.Clone(dims)
		for _, axis := range axes {
			kept[axis] = 1
		}
		size := shapes.Make(shapes.Float32, kept...).Size()
		sum, bound := make([]float64, size), make([]float64, size)
		most, least := slices.Repeat([]float32{-inf}, size), slices.Repeat([]float32{inf}, size)
		indices(dims, func(index []int) {
			v := x.data.([]float32)[at(dims, index)]
			index = slices.Clone(index)
			for _, axis := range axes {
				index[axis] = 0
			}
			i := at(kept, index)
			sum[i] += float64(v)
			bound[i] += math.Abs(float64(v)) * 0x1p-40
			most[i], least[i] = max(most[i], v), min(least[i], v)
		})
		for i, v := range got[0].([]float32) {
			if math.Abs(float64(v)-sum[i]) > math.Abs(sum[i])*0x1p-24+bound[i] {
				t.Fatalf("%v over %v: sum %d is %v, want %v", dims, axes, i, v, sum[i])
			}
		}
		if !same(got[1], most) || !same(got[2], least) {
			t.Fatalf("%v over %v: the extremes are wrong", dims, axes)
		}
		if !slices.EqualFunc(got, alone, same) {
			t.Fatalf("%v over %v: the processors change the result", dims, axes)
		}
	}
}

// TestIndices compares operations with indices with naive ones. Some indices do not exist.
func TestIndices(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		dims := lists.Make(2+r.IntN(2), func(int) int { return 1 + r.IntN(5) })
		x := random(r, shapes.Make(shapes.Float32, dims...).Size())
		n, count := 1+r.IntN(len(dims)), 1+r.IntN(4)
		list := lists.Make(count*n, func(int) int32 { return int32(r.IntN(9) - 2) })
		rows := random(r, count*len(x)/dims[0])
		part := lists.Map(dims, func(d int) int { return 1 + r.IntN(d) })
		patch := random(r, shapes.Make(shapes.Float32, part...).Size())
		start := lists.Map(dims, func(int) tensor { return scalar(int32(r.IntN(9) - 2)) })
		rowDims := append([]int{count}, dims[1:]...)
		first := lists.Make(count, func(i int) int32 { return list[i*n] })
		got := compute(t, func(in []*node) []*node {
			x, index, rows, first, patch, start := in[0], in[1], in[2], in[3], in[4], in[5:]
			return []*node{graph.Gather(x, index), graph.ScatterAdd(first, rows, x.Shape()),
				graph.DynamicSlice(x, start, part), graph.DynamicUpdateSlice(x, patch, start),
				graph.ScatterAdd(first, graph.ConvertDType(rows, shapes.BFloat16),
					shapes.Make(shapes.BFloat16, dims...))}
		}, append([]tensor{of(x, dims...), of(list, count, n), of(rows, rowDims...),
			of(first, count, 1), of(patch, part...)}, start...)...)

		var gathered, sliced []float32
		clamp := func(v int32, most int) int { return min(max(int(v), 0), most) }
		indices(append([]int{count}, dims[n:]...), func(index []int) {
			from := lists.Make(n, func(i int) int { return clamp(list[index[0]*n+i], dims[i]-1) })
			gathered = append(gathered, x[at(dims, append(from, index[1:]...))])
		})
		scattered, narrow := make([]float32, len(x)), make([]float32, len(x))
		indices(rowDims, func(index []int) {
			v := rows[at(rowDims, index)]
			if row := int(first[index[0]]); row >= 0 && row < dims[0] {
				i := at(dims, append([]int{row}, index[1:]...))
				scattered[i] += v
				narrow[i] += shapes.ToBFloat(v).Float32()
			}
		})
		updated := slices.Clone(x)
		indices(part, func(index []int) {
			at := at(dims, lists.Make(len(index), func(i int) int {
				return index[i] + clamp(start[i].data.([]int32)[0], dims[i]-part[i])
			}))
			sliced = append(sliced, x[at])
			updated[at] = patch[len(sliced)-1]
		})
		if !same(got[0], gathered) || !same(got[2], sliced) || !same(got[3], updated) {
			t.Fatalf("%v %v: got %v, %v, %v; want %v, %v, %v", dims, list, got[0], got[2], got[3],
				gathered, sliced, updated)
		}
		for i, v := range got[1].([]float32) {
			if math.Abs(float64(v-scattered[i])) > 1e-5 {
				t.Fatalf("%v %v: got %v, want %v", dims, first, got[1], scattered)
			}
		}
		for i, v := range got[4].([]shapes.BFloat) {
			if math.Abs(float64(v.Float32()-narrow[i])) > 0.02*max(1, math.Abs(float64(narrow[i]))) {
				t.Fatalf("%v %v: got %v, want %v", dims, first, got[4], narrow)
			}
		}
	}
}

// TestWhile runs loops: one that swaps values and passes one through, one within another, and one
// without an iteration.
func TestWhile(t *testing.T) {
	loop := func(n int32, body func(in []*node) []*node, in []*node) []*node {
		return graph.While(func(in []*node) *node {
			return graph.LessThan(in[0], graph.Const(in[0].Graph(), n))
		}, func(in []*node) []*node {
			return append([]*node{graph.AddScalar(in[0], 1)}, body(in[1:])...)
		}, append([]*node{graph.Const(in[0].Graph(), int32(0))}, in...))[1:]
	}
	swap := func(in []*node) []*node {
		return []*node{in[1], in[0], in[2], graph.Add(in[3], graph.Const(in[0].Graph(), float32(2)))}
	}
	got := compute(t, func(in []*node) []*node {
		in = append(in, in[0])
		return slices.Concat(loop(3, swap, in), loop(0, swap, in), loop(3, func(in []*node) []*node {
			return loop(2, swap, in)
		}, in))
	}, scalar[float32](1), scalar[float32](2), scalar[float32](3))
	want := []float32{2, 1, 3, 7, 1, 2, 3, 1, 1, 2, 3, 13}
	for i, v := range got {
		if !same(v, want[i:i+1]) {
			t.Errorf("result %d is %v, want %v", i, v, want[i])
		}
	}
}

// TestResultsOwnTheirMemory checks that a caller may change results and inputs, whether results are
// inputs, constants, reshaped values or each other.
func TestResultsOwnTheirMemory(t *testing.T) {
	g := program(func(in []*node) []*node {
		double := graph.Add(in[0], in[0])
		constant := graph.Constant(in[0].Graph(), []float32{7}, 2)
		return []*node{in[0], in[0], graph.Reshape(in[0], 2, 1), double, graph.Reshape(double, 1, 2),
			graph.Barrier(double)[0], constant, constant}
	}, shapes.Make(shapes.Float32, 2))
	run, err := graphexec.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	in := []float32{1, 2}
	for range 3 {
		got, err := run([]any{in})
		if err != nil {
			t.Fatal(err)
		}
		want := [][]float32{{1, 2}, {1, 2}, {1, 2}, {2, 4}, {2, 4}, {2, 4}, {7, 7}, {7, 7}}
		for i, v := range got {
			if !same(v, want[i]) {
				t.Errorf("result %d is %v, want %v", i, v, want[i])
			}
			clear(v.([]float32))
		}
		if !slices.Equal(in, []float32{1, 2}) {
			t.Fatalf("the input is %v", in)
		}
	}
}

// TestConcurrentCalls runs a program on several goroutines.
func TestConcurrentCalls(t *testing.T) {
	g := program(func(in []*node) []*node {
		x := in[0]
		for range 20 {
			x = graph.AddScalar(graph.MulScalar(x, 2), 1)
		}
		return []*node{x}
	}, shapes.Make(shapes.Float64, 1000))
	run, err := graphexec.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			got, err := run([]any{slices.Repeat([]float64{float64(i)}, 1000)})
			want := float64(i)*(1<<20) + 1<<20 - 1
			if err != nil || !same(got[0], slices.Repeat([]float64{want}, 1000)) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestRefusals checks that operations that are not computed here are errors, even if no result
// needs them, and that inputs are checked.
func TestRefusals(t *testing.T) {
	shape := shapes.Make(shapes.Float32, 2)
	for want, build := range map[string]func(x *node) *node{
		"operations custom_call are only computed by accelerators": func(x *node) *node {
			return graph.CustomCall("f", []*node{x}, []shapes.Shape{shape})[0]
		},
		"operations all_gather are only computed by accelerators":     graph.AllGather,
		"operations reduce_scatter are only computed by accelerators": graph.ReduceScatter,
		"operation not of (float32[2]) to (float32[2])":               graph.Not,
		"operation dynamic_slice of (float32[2], float32) to (float32[1])": func(x *node) *node {
			return graph.DynamicSlice(x, []*node{graph.Const(x.Graph(), float32(0))}, []int{1})
		},
		"operation gather of (float32[2], float32[2,1]) to (float32[2])": func(x *node) *node {
			return graph.Gather(x, graph.InsertAxes(x, -1))
		},
		"operation scatter of (float32[2], float32[2,1], float32[2]) to": func(x *node) *node {
			return graph.ScatterAdd(graph.InsertAxes(x, -1), x, shape)
		},
		"operation dot_general of (float32[2], float32[2]) to (int8)": func(x *node) *node {
			return graph.Product{Contracted: [2][]int{{0}, {0}}, Result: shapes.Int8}.Of(x, x)
		},
	} {
		g := program(func(in []*node) []*node {
			build(in[0])
			return in
		}, shape)
		if _, err := graphexec.Compile(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := graphexec.Compile(graph.New("two", 2)); err == nil {
		t.Error("a graph for two replicas is accepted")
	}
	run, err := graphexec.Compile(program(func(in []*node) []*node { return in }, shape))
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range [][]any{nil, {[]float32{1}}, {[]int32{1, 2}}, {nil}} {
		if _, err := run(in); err == nil {
			t.Errorf("inputs %v are accepted", in)
		}
	}
}

func benchmark(b *testing.B, build func(in []*node) []*node, in ...tensor) {
	g := program(build, lists.Map(in, func(x tensor) shapes.Shape { return x.shape(b) })...)
	run, err := graphexec.Compile(g)
	if err != nil {
		b.Fatal(err)
	}
	data := lists.Map(in, func(x tensor) any { return x.data })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := run(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, d := range []shapes.DType{shapes.Float32, shapes.BFloat16} {
		b.Run(d.String(), func(b *testing.B) {
			benchmark(b, func(in []*node) []*node {
				p := graph.Product{Contracted: [2][]int{{1}, {1}}, Result: d}
				return []*node{p.Of(graph.ConvertDType(in[0], d), graph.ConvertDType(in[1], d))}
			}, of(random(r, 512*256), 512, 256), of(random(r, 256*256), 256, 256))
		})
	}
}

// BenchmarkElementwise measures ten operations on 2²⁰ elements.
func BenchmarkElementwise(b *testing.B) {
	x := random(rand.New(rand.NewPCG(11, 12)), 1<<20)
	for name, chain := range map[string]func(x, y *node) *node{
		"arithmetic": func(x, y *node) *node {
			for range 5 {
				x = graph.Max(graph.Sub(graph.Mul(x, y), y), x)
			}
			return x
		},
		"exponential": func(x, _ *node) *node { return graph.Exp(x) },
	} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, func(in []*node) []*node { return []*node{chain(in[0], in[1])} }, of(x), of(x))
		})
	}
}

// BenchmarkMoves measures transpositions, broadcasts, reductions and conversions of 2²⁰ elements.
func BenchmarkMoves(b *testing.B) {
	x := of(random(rand.New(rand.NewPCG(11, 12)), 1<<20), 1024, 1024)
	bits := of(make([]uint32, 1<<20), 1024, 1024)
	for _, c := range []struct {
		name  string
		in    tensor
		build func(x *node) *node
	}{
		{"transpose", x, func(x *node) *node { return graph.TransposeAllAxes(x, 1, 0) }},
		{"broadcast", of(make([]float32, 1024), 1024, 1), func(x *node) *node {
			return graph.BroadcastToDims(x, 1024, 1024)
		}},
		{"convert", x, func(x *node) *node { return graph.ConvertDType(x, shapes.BFloat16) }},
		{"rows", x, func(x *node) *node { return graph.ReduceSum(x, 1) }},
		{"columns", x, func(x *node) *node { return graph.ReduceSum(x, 0) }},
		{"maximum", x, func(x *node) *node { return graph.ReduceMax(x, 1) }},
		{"xor", bits, func(x *node) *node { return graph.Xor(x, x) }},
		{"tanh", x, graph.Tanh},
		{"compare", x, func(x *node) *node { return graph.LessThan(x, x) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			benchmark(b, func(in []*node) []*node { return []*node{c.build(in[0])} }, c.in)
		})
	}
}
