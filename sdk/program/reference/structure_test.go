package reference_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// count returns the tensor 0, 1, 2, … of the given shape.
func count(shape ...int) reference.Tensor {
	data := make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = float64(i)
	}
	return reference.Floats(data, shape...)
}

func normal(rng *rand.Rand, shape ...int) reference.Tensor {
	x := count(shape...)
	for i := range x.Floats {
		x.Floats[i] = rng.NormFloat64()
	}
	return x
}

func TestSources(t *testing.T) {
	constant := func(attr program.Attr, want program.Type) reference.Tensor {
		return apply(t, program.OpConstant, attr, want)
	}
	equal(t, constant(program.Attr{Floats: []float64{0.1}}, program.FloatType(2, 2)),
		reference.Floats([]float64{0.1, 0.1, 0.1, 0.1}, 2, 2))
	equal(t, constant(program.Attr{Floats: []float64{1, inf, nan}}, program.FloatType(3)),
		f(1, inf, nan))
	equal(t, constant(program.Attr{Ints: []int64{-1}},
		program.Type{DType: program.Int, Shape: []int{2}}), i(-1, -1))
	equal(t, constant(program.Attr{Ints: []int64{0, 1}},
		program.Type{DType: program.Bool, Shape: []int{2}}), b(false, true))
	index := func(dtype program.DType, axis int) reference.Tensor {
		return apply(t, program.OpIota, program.Attr{Axes: []int{axis}},
			program.Type{DType: dtype, Shape: []int{2, 3}})
	}
	equal(t, index(program.Float, 0), reference.Floats([]float64{0, 0, 0, 1, 1, 1}, 2, 3))
	equal(t, index(program.Int, 1), reference.Ints([]int32{0, 1, 2, 0, 1, 2}, 2, 3))
}

func TestShapeOps(t *testing.T) {
	x := count(2, 3)
	type attr = program.Attr
	cases := []struct {
		name string
		op   program.Op
		attr attr
		to   program.Type
		args []reference.Tensor
		want reference.Tensor
	}{
		{"reshape", program.OpReshape, attr{}, program.FloatType(3, 1, 2), []reference.Tensor{x},
			count(3, 1, 2)},
		{"reshape to scalar", program.OpReshape, attr{}, program.FloatType(), []reference.Tensor{f(7)},
			reference.Float(7)},
		{"transpose", program.OpTranspose, attr{Axes: []int{1, 0}}, program.Type{}, []reference.Tensor{x},
			reference.Floats([]float64{0, 3, 1, 4, 2, 5}, 3, 2)},
		{"transpose 3", program.OpTranspose, attr{Axes: []int{2, 0, 1}}, program.Type{},
			[]reference.Tensor{count(2, 2, 2)}, reference.Floats([]float64{0, 2, 4, 6, 1, 3, 5, 7}, 2, 2,
				2)},
		{"transpose scalar", program.OpTranspose, attr{}, program.Type{},
			[]reference.Tensor{reference.Int(3)}, reference.Int(3)},
		{"broadcast scalar", program.OpBroadcast, attr{}, program.FloatType(2, 2),
			[]reference.Tensor{reference.Float(3)}, reference.Floats([]float64{3, 3, 3, 3}, 2, 2)},
		{"broadcast column", program.OpBroadcast, attr{Axes: []int{0}},
			program.Type{DType: program.Int, Shape: []int{2, 3}}, []reference.Tensor{i(1, 2)},
			reference.Ints([]int32{1, 1, 1, 2, 2, 2}, 2, 3)},
		{"broadcast one", program.OpBroadcast, attr{Axes: []int{0, 2}}, program.FloatType(2, 2, 2),
			[]reference.Tensor{reference.Floats([]float64{1, 2}, 1, 2)},
			reference.Floats([]float64{1, 2, 1, 2, 1, 2, 1, 2}, 2, 2, 2)},
		{"slice", program.OpSlice, attr{Start: []int{0, 1}, Limit: []int{2, 3}, Stride: []int{1, 1}},
			program.Type{}, []reference.Tensor{x}, reference.Floats([]float64{1, 2, 4, 5}, 2, 2)},
		{"slice stride", program.OpSlice, attr{Start: []int{1}, Limit: []int{8}, Stride: []int{3}},
			program.Type{}, []reference.Tensor{count(8)}, f(1, 4, 7)},
		{"slice bools", program.OpSlice, attr{Start: []int{1}, Limit: []int{2}, Stride: []int{5}},
			program.Type{}, []reference.Tensor{b(true, false, true)}, b(false)},
		{"concatenate rows", program.OpConcatenate, attr{Axes: []int{0}}, program.Type{},
			[]reference.Tensor{x, reference.Floats([]float64{9, 8, 7}, 1, 3)},
			reference.Floats([]float64{0, 1, 2, 3, 4, 5, 9, 8, 7}, 3, 3)},
		{"concatenate columns", program.OpConcatenate, attr{Axes: []int{1}}, program.Type{},
			[]reference.Tensor{x, reference.Floats([]float64{9, 8}, 2, 1)},
			reference.Floats([]float64{0, 1, 2, 9, 3, 4, 5, 8}, 2, 4)},
		{"concatenate ints", program.OpConcatenate, attr{Axes: []int{0}}, program.Type{},
			[]reference.Tensor{i(1), i(2), i(3)}, i(1, 2, 3)},
		{"sum rows", program.OpReduceSum, attr{Axes: []int{0}}, program.Type{}, []reference.Tensor{x},
			f(3, 5, 7)},
		{"sum columns", program.OpReduceSum, attr{Axes: []int{1}}, program.Type{}, []reference.Tensor{x},
			f(3, 12)},
		{"sum all", program.OpReduceSum, attr{Axes: []int{0, 1}}, program.Type{}, []reference.Tensor{x},
			reference.Float(15)},
		{"sum outer axes", program.OpReduceSum, attr{Axes: []int{0, 2}}, program.Type{},
			[]reference.Tensor{count(2, 2, 2)}, f(10, 18)},
		{"sum wraps", program.OpReduceSum, attr{Axes: []int{0}}, program.Type{},
			[]reference.Tensor{i(math.MaxInt32, 2)}, reference.Int(math.MinInt32 + 1)},
		{"max", program.OpReduceMax, attr{Axes: []int{1}}, program.Type{},
			[]reference.Tensor{reference.Floats([]float64{1, 5, inf, nan}, 2, 2)}, f(5, nan)},
		{"max int", program.OpReduceMax, attr{Axes: []int{0}}, program.Type{},
			[]reference.Tensor{i(-3, -1, -2)}, reference.Int(-1)},
		{"min", program.OpReduceMin, attr{Axes: []int{1}}, program.Type{},
			[]reference.Tensor{reference.Floats([]float64{1, 5, nan, -inf}, 2, 2)}, f(1, nan)},
		{"min uint", program.OpReduceMin, attr{Axes: []int{0}}, program.Type{},
			[]reference.Tensor{u(math.MaxUint32, 3)}, reference.Uint(3)},
		{"stop_gradient", program.OpStopGradient, attr{}, program.Type{}, []reference.Tensor{x}, x},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { equal(t, apply(t, c.op, c.attr, c.to, c.args...), c.want) })
	}
}

// TestDot compares with the definition, written with explicit loops over all indices.
func TestDot(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cases := []struct {
		name string
		x, y []int
		attr program.Attr
	}{
		{"matrices", []int{3, 4}, []int{4, 5},
			program.Attr{LhsContract: []int{1}, RhsContract: []int{0}}},
		{"rows with rows", []int{3, 4}, []int{5, 4},
			program.Attr{LhsContract: []int{1}, RhsContract: []int{1}}},
		{"outer", []int{3}, []int{4}, program.Attr{}},
		{"scalars", nil, nil, program.Attr{}},
		{"scalar and matrix", nil, []int{2, 3}, program.Attr{}},
		{"inner", []int{6}, []int{6}, program.Attr{LhsContract: []int{0}, RhsContract: []int{0}}},
		{"batch last", []int{3, 4, 2}, []int{2, 5, 4},
			program.Attr{LhsContract: []int{1}, RhsContract: []int{2}, LhsBatch: []int{2},
				RhsBatch: []int{0}}},
		{"two of each", []int{2, 3, 4, 5, 6}, []int{6, 5, 3, 2, 7},
			program.Attr{LhsContract: []int{4, 1}, RhsContract: []int{0, 2}, LhsBatch: []int{3, 0},
				RhsBatch: []int{1, 3}}},
		{"batch only", []int{4, 3}, []int{3, 4},
			program.Attr{LhsBatch: []int{0, 1}, RhsBatch: []int{1, 0}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x, y := normal(rng, c.x...), normal(rng, c.y...)
			got := apply(t, program.OpDot, c.attr, program.Type{}, x, y)
			want := naiveDot(x, y, c.attr)
			if len(got.Floats) != len(want) {
				t.Fatalf("%d elements, want %d", len(got.Floats), len(want))
			}
			for i, v := range want {
				if !(math.Abs(got.Floats[i]-v) <= 1e-13*float64(x.Len())) {
					t.Errorf("element %d is %v, want %v", i, got.Floats[i], v)
				}
			}
		})
	}
}

// naiveDot adds the products of all pairs of elements of x and y whose contracted and batch indices
// agree to the corresponding elements of the result.
func naiveDot(x, y reference.Tensor, a program.Attr) []float64 {
	var shape []int
	for _, axis := range a.LhsBatch {
		shape = append(shape, x.Type.Shape[axis])
	}
	free := func(rank int, lists ...[]int) (axes []int) {
		used := map[int]bool{}
		for _, l := range lists {
			for _, v := range l {
				used[v] = true
			}
		}
		for i := range rank {
			if !used[i] {
				axes = append(axes, i)
			}
		}
		return axes
	}
	left := free(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := free(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	for _, axis := range left {
		shape = append(shape, x.Type.Shape[axis])
	}
	for _, axis := range right {
		shape = append(shape, y.Type.Shape[axis])
	}
	out := make([]float64, program.FloatType(shape...).Size())
	for i, v := range x.Floats {
		xi := unravel(i, x.Type.Shape)
		for j, w := range y.Floats {
			yi := unravel(j, y.Type.Shape)
			agree := true
			for k := range a.LhsContract {
				agree = agree && xi[a.LhsContract[k]] == yi[a.RhsContract[k]]
			}
			for k := range a.LhsBatch {
				agree = agree && xi[a.LhsBatch[k]] == yi[a.RhsBatch[k]]
			}
			if !agree {
				continue
			}
			var index []int
			for _, axis := range a.LhsBatch {
				index = append(index, xi[axis])
			}
			for _, axis := range left {
				index = append(index, xi[axis])
			}
			for _, axis := range right {
				index = append(index, yi[axis])
			}
			at := 0
			for k, d := range shape {
				at = at*d + index[k]
			}
			out[at] += v * w
		}
	}
	return out
}

func unravel(i int, shape []int) []int {
	index := make([]int, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		index[k] = i % shape[k]
		i /= shape[k]
	}
	return index
}

func TestDotKeepsNaN(t *testing.T) {
	x := reference.Floats([]float64{0, 1, 0, 0}, 2, 2)
	y := reference.Floats([]float64{nan, 1, 1, 1}, 2, 2)
	attr := program.Attr{LhsContract: []int{1}, RhsContract: []int{0}}
	equal(t, apply(t, program.OpDot, attr, program.Type{}, x, y),
		reference.Floats([]float64{nan, 1, nan, 0}, 2, 2))
	equal(t, apply(t, program.OpDot, attr, program.Type{}, y, x),
		reference.Floats([]float64{nan, nan, 0, 1}, 2, 2))
}

func TestHadamardIsItsOwnInverse(t *testing.T) {
	x := normal(rand.New(rand.NewPCG(3, 4)), 2, 3, 64)
	for block := 1; block <= 64; block *= 2 {
		twice := func(v []program.Value) program.Value { return v[0].Hadamard(block).Hadamard(block) }
		got := evaluate(t, twice, x)
		for i, v := range x.Floats {
			if !(math.Abs(got.Floats[i]-v) <= 1e-14) {
				t.Fatalf("block %d: element %d is %v, was %v", block, i, got.Floats[i], v)
			}
		}
	}
}

func TestHadamardSpoilsOnlyItsBlock(t *testing.T) {
	got := apply(t, program.OpHadamard, program.Attr{Block: 2}, program.Type{},
		f(1, inf, 1, 1, nan, 0))
	want := []bool{false, false, true, true, false, false}
	for i, v := range got.Floats {
		if finite := !math.IsNaN(v) && !math.IsInf(v, 0); finite != want[i] {
			t.Errorf("element %d is %v", i, v)
		}
	}
}

// TestRandomBits checks a known-answer vector of Random123, kat_vectors (threefry2x32, 20 rounds).
// random_bits counts from 0, so programs reach only vectors with a small counter; TestThreefry in
// the package tests all of them.
func TestRandomBits(t *testing.T) {
	bits := func(v []program.Value) program.Value { return v[0].Builder().RandomBits(v[0], 2, 3) }
	got := evaluate(t, bits, u(0, 0))
	if got.Ints[0] != 0x6b200159 {
		t.Errorf("element 0 under the key 0 is %#x", got.Ints[0])
	}
	other := evaluate(t, bits, u(0, 1))
	seen := map[int64]bool{}
	for _, v := range append(got.Ints, other.Ints...) {
		seen[v] = true
	}
	if len(seen) != 12 {
		t.Errorf("12 words under two keys hold %d different values", len(seen))
	}
}
