package reference_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestTables checks what random programs do not contain: ties, ends of ranges, non-finite values.
func TestTables(t *testing.T) {
	do := func(op program.Op, to program.Type, args ...reference.Tensor) reference.Tensor {
		return apply(t, op, program.Attr{}, to, args...)
	}
	none := program.Type{}
	levels := f(4, 0, 2, 2)
	equal(t, do(program.OpNearest, none, f(5, 3, 1, 1.5, -9, nan, inf, -inf), levels),
		i(0, 0, 1, 2, 1, 0, 0, 0))
	equal(t, do(program.OpNearest, none, f(1, 9, -9), f(nan, inf, 3)), i(2, 2, 2))
	equal(t, do(program.OpNearest, none, f(1), f(nan, inf, nan)), i(0))
	rows := reference.Floats([]float64{0, 0, 1, 1, 1, 0, nan, 0}, 4, 2)
	x := reference.Floats([]float64{0.5, 0.5, 1, 0.75, 0.9, 0, nan, 5, 1, inf}, 5, 2)
	equal(t, do(program.OpNearest, none, x, rows), i(0, 1, 2, 0, 0))

	equal(t, do(program.OpLookup, none, i(1, 0, 3, 4, -1), levels), f(0, 4, 2, 2, 4))
	equal(t, do(program.OpLookup, none, reference.Ints([]int32{2, 9}, 1, 2), rows),
		reference.Floats([]float64{1, 0, nan, 0}, 1, 2, 2))
	equal(t, do(program.OpLookup, none, reference.Int(1), levels), reference.Float(0))

	equal(t, do(program.OpScatterAdd, program.FloatType(3), i(1, 1, -4, 9), f(1, 2, 4, 8)), f(4, 3, 8))
	equal(t, do(program.OpScatterAdd, program.FloatType(2, 2), i(1, 1, 1, 0, 1), x),
		reference.Floats([]float64{nan, 5, 3.4, inf}, 2, 2))

	mask := func(k int32, x ...float64) reference.Tensor {
		return do(program.OpTopK, none, f(x...), reference.Int(k))
	}
	equal(t, mask(2, 1, 3, 3, 3), b(false, true, true, false))
	equal(t, mask(2, -1, -3, 0, math.Copysign(0, -1)), b(false, false, true, true))
	equal(t, mask(1, 0, math.Copysign(0, -1)), b(true, false))
	equal(t, mask(1, math.Copysign(0, -1), 0), b(true, false))
	equal(t, mask(2, inf, 1, nan, -inf), b(true, false, true, false))
	equal(t, mask(0, 1, 2), b(false, false))
	equal(t, mask(-1, 1, 2), b(false, false))
	equal(t, mask(9, 1, 2), b(true, true))

	at := func(k int32, x ...float64) reference.Tensor {
		return do(program.OpOrderStatistic, none, f(x...), reference.Int(k))
	}
	equal(t, at(1, 5, inf, 3, -inf), reference.Float(3))
	equal(t, at(-1, 5, 3, 4), reference.Float(3))
	equal(t, at(7, 5, 3, 4), reference.Float(5))
	equal(t, at(2, 5, nan, 4), reference.Float(nan))
}

// TestPlacesInRows checks ArgMinRow and ArgMaxRow, which are composed of other operations.
func TestPlacesInRows(t *testing.T) {
	first := func(x reference.Tensor, f func(x program.Value) program.Value) reference.Tensor {
		return evaluate(t, func(args []program.Value) program.Value { return f(args[0]) }, x)
	}
	x := reference.Floats([]float64{3, 1, 2, 1, 0, nan, 5, nan, -inf, 7, inf, 7}, 3, 4)
	equal(t, first(x, program.Value.ArgMinRow), reference.Ints([]int32{1, 1, 0}, 3, 1))
	equal(t, first(x, program.Value.ArgMaxRow), reference.Ints([]int32{0, 1, 2}, 3, 1))
	equal(t, first(i(2, 5, 5), program.Value.ArgMaxRow), i(1))
}

// TestQuantiles checks QuantileRow against numpy.quantile of NumPy 2.4.
func TestQuantiles(t *testing.T) {
	x := reference.Floats([]float64{0.3, -1.7, 2.9, 0.8, -0.2, 1.1, 4.6}, 1, 7)
	for p, want := range map[float64]float64{
		0: -1.7, 0.1: -0.8, 0.25: 0.05, 0.5: 0.8, 0.9: 3.58, 0.99: 4.498, 1: 4.6,
	} {
		got := evaluate(t, func(args []program.Value) program.Value { return args[0].QuantileRow(p) }, x)
		if len(got.Type.Shape) != 2 || math.Abs(got.Floats[0]-want) > 1e-14 {
			t.Errorf("the %v-quantile is %v, want %v", p, got, want)
		}
	}
	for _, p := range []float64{-0.1, 1.1, nan} {
		b := program.NewBuilder("quantile")
		if b.Zeros(3).QuantileRow(p); b.Err() == nil {
			t.Errorf("the %v-quantile is taken", p)
		}
	}
}
