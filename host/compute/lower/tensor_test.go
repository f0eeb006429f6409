package lower_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// normal returns a tensor of seeded, normally distributed floats.
func normal(seed uint64, shape ...int) reference.Tensor {
	r := rand.New(rand.NewPCG(seed, 1))
	x := reference.Tensor{Type: program.FloatType(shape...)}
	for range int(x.Type.Size()) {
		x.Floats = append(x.Floats, r.NormFloat64())
	}
	return x
}

var everyType = []program.DType{program.Float, program.Int, program.Uint, program.Bool}

func TestShapeOperations(t *testing.T) {
	for _, d := range everyType {
		x, y := operand(d, 4, 6, 5), operand(d, 4, 2, 5)
		s, v, m := operand(d), operand(d, 6), operand(d, 4, 5)
		p := build(t, func(b *program.Builder) {
			x, y, s, v, m := b.Input("x", x.Type), b.Input("y", y.Type), b.Input("s", s.Type),
				b.Input("v", v.Type), b.Input("m", m.Type)
			b.Output("reshape", x.Reshape(2, 60))
			b.Output("scalar", s.Reshape(1, 1).Reshape())
			for i, perm := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}} {
				b.Output(fmt.Sprint("transpose", i), x.Transpose(perm...))
			}
			b.Output("transpose_m", m.Transpose(1, 0))
			b.Output("broadcast_s", s.Broadcast([]int{3, 2}, nil))
			b.Output("broadcast_v", v.Broadcast([]int{4, 6, 5}, []int{1}))
			b.Output("broadcast_last", v.Broadcast([]int{3, 6}, []int{1}))
			b.Output("broadcast_first", v.Broadcast([]int{6, 3}, []int{0}))
			b.Output("broadcast_m", m.Broadcast([]int{4, 3, 5}, []int{0, 2}))
			b.Output("broadcast_1", v.Reshape(1, 6, 1).Broadcast([]int{2, 3, 6, 2}, []int{0, 2, 3}))
			b.Output("slice", x.Slice([]int{1, 0, 2}, []int{4, 6, 3}, []int{1, 2, 1}))
			b.Output("slice_s", s.Slice(nil, nil, nil))
			b.Output("concatenate", x.Concatenate(1, y, x))
			b.Output("concatenate_1", v.Concatenate(0))
		})
		check(t, tolerance{}, p, map[string]reference.Tensor{"x": x, "y": y, "s": s, "v": v, "m": m})
	}
}

func TestSources(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		for _, d := range everyType[:3] {
			b.Output(fmt.Sprint("iota_", d), b.Iota(program.Type{DType: d, Shape: []int{3, 1, 7}}, 2))
			b.Output(fmt.Sprint("iota0_", d), b.Iota(program.Type{DType: d, Shape: []int{3, 7}}, 0))
		}
		b.Output("const", b.Const(1.0/3))
		b.Output("full", b.Full(-0.1, 2, 3))
		b.Output("table", b.Table([]float64{1, nan, -inf, 1e-300, 1e300, 0.1}, 3, 2))
		b.Output("int", b.ConstInt(math.MinInt32))
		b.Output("uint", b.ConstUint(math.MaxUint32))
		ints := func(d program.DType, shape []int, v ...int64) program.Value {
			return b.Apply(program.OpConstant, program.Attr{Ints: v}, program.Type{DType: d, Shape: shape})
		}
		b.Output("ints", ints(program.Int, []int{3}, -1, 1<<31-1, -1<<31))
		b.Output("uints", ints(program.Uint, []int{2}, 1<<32-1, 1<<31))
		b.Output("bools", ints(program.Bool, []int{3}, 0, 1, 1))
		b.Output("filled", ints(program.Bool, []int{2, 2}, 1))
		// The sign of a zero and the kind of an infinity must survive the sharing of constants.
		b.Output("zero", b.Const(1).Div(b.Const(0)))
		b.Output("negative_zero", b.Const(1).Div(b.Const(neg0)))
		b.Output("nan", b.Const(nan))
	})
	check(t, tolerance{}, p, nil)
}

// TestLongIota checks numbers above 2²⁴, where counting in floats would stop.
func TestLongIota(t *testing.T) {
	testlevel.Long(t, "it fills 64 MB")
	const n = 1<<24 + 5
	p := build(t, func(b *program.Builder) {
		i := b.Iota(program.FloatType(n), 0)
		b.Output("last", i.Slice([]int{n - 3}, []int{n}, []int{1}))
	})
	compare(t, "last", tolerance{}, run(t, p, nil)["last"],
		reference.Floats([]float64{n - 3, n - 1, n - 1}, 3), nil)
}

func TestRandomBits(t *testing.T) {
	for _, shape := range [][]int{{}, {1}, {7}, {33, 5}, {4, 3, 2}} {
		for _, key := range [][]uint32{{0, 0}, {1, 2}, {math.MaxUint32, 0x9E3779B9}} {
			p := build(t, func(b *program.Builder) {
				b.Output("bits", b.RandomBits(
					b.Input("key", program.Type{DType: program.Uint, Shape: []int{2}}), shape...))
			})
			check(t, tolerance{}, p, map[string]reference.Tensor{"key": reference.Uints(key, 2)})
		}
	}
}

// TestReductions checks reductions of NaN, of infinities, and of −Inf only, along all sets of axes.
func TestReductions(t *testing.T) {
	for _, shape := range [][]int{{1}, {5}, {47}, {1, 33}, {33, 1}, {6, 16}, {5, 24}, {6, 32}, {3, 64},
		{3, 65}, {2, 128}, {3, 5, 16}, {2, 3, 4, 5}} {
		rank := len(shape)
		x := normal(uint64(rank), shape...)
		for i, v := range specials {
			if i < x.Len()/2 && math.Abs(v) < 1e20 {
				x.Floats[i*2] = v
			}
		}
		x.Floats[x.Len()-1] = -inf
		x.Floats[x.Len()/2] = inf
		withNaN := x.Clone()
		withNaN.Floats[x.Len()/3] = nan
		floor := x.Clone()
		for i := range floor.Floats {
			floor.Floats[i] = -inf
		}
		for set := 1; set < 1<<rank; set++ {
			var axes []int
			for a := range rank {
				if set>>a&1 == 1 {
					axes = append(axes, a)
				}
			}
			for _, in := range []reference.Tensor{x, withNaN, floor, operand(program.Int, shape...),
				operand(program.Uint, shape...)} {
				p := build(t, func(b *program.Builder) {
					v := b.Input("x", in.Type)
					b.Output("max", v.ReduceMax(axes...))
					b.Output("min", v.ReduceMin(axes...))
					if in.Type.DType != program.Uint {
						b.Output("absmax", v.Abs().ReduceMax(axes...))
					}
					if in.Type.DType != program.Float {
						b.Output("sum", v.ReduceSum(axes...))
					}
				})
				check(t, tolerance{}, p, map[string]reference.Tensor{"x": in})
			}
			sum := build(t, func(b *program.Builder) {
				b.Output("sum", b.Input("x", x.Type).ReduceSum(axes...))
			})
			for _, in := range []reference.Tensor{normal(3, shape...), withNaN} {
				// At most 300 terms of magnitude 3, each rounded.
				check(t, tolerance{abs: 1e-4, rel: 1e-5}, sum, map[string]reference.Tensor{"x": in})
			}
		}
	}
}

func TestKeepDims(t *testing.T) {
	x := normal(1, 9, 32)
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		b.Output("mean", v.MeanRow())
		b.Output("max", v.Abs().MaxRow())
		b.Output("min", v.MinRow())
		b.Output("all", v.SumAll())
	})
	check(t, tolerance{abs: 1e-5, rel: 1e-6}, p, map[string]reference.Tensor{"x": x})
}

func TestDot(t *testing.T) {
	type axes = [2][]int
	for i, c := range []struct {
		x, y            []int
		contract, batch axes
	}{
		{x: []int{5, 7}, y: []int{7, 3}, contract: axes{{1}, {0}}},
		{x: []int{5, 7}, y: []int{3, 7}, contract: axes{{1}, {1}}},
		{x: []int{7, 5}, y: []int{7, 3}, contract: axes{{0}, {0}}},
		{x: []int{7, 5}, y: []int{3, 7}, contract: axes{{0}, {1}}},
		{x: []int{7}, y: []int{7}, contract: axes{{0}, {0}}},
		{x: []int{7}, y: []int{4}, contract: axes{}},
		{x: []int{}, y: []int{4}, contract: axes{}},
		{x: []int{2, 5, 7}, y: []int{2, 7, 3}, contract: axes{{2}, {1}}, batch: axes{{0}, {0}}},
		{x: []int{5, 2, 7}, y: []int{7, 2, 3}, contract: axes{{2}, {0}}, batch: axes{{1}, {1}}},
		{x: []int{2, 7, 5}, y: []int{2, 7, 3}, contract: axes{{1}, {1}}, batch: axes{{0}, {0}}},
		{x: []int{2, 3, 4, 5}, y: []int{5, 3, 6, 2}, contract: axes{{3, 1}, {0, 1}},
			batch: axes{{0}, {3}}},
		{x: []int{2, 3, 4, 5}, y: []int{3, 2, 6}, contract: axes{{}, {}}, batch: axes{{1, 0}, {0, 1}}},
		{x: []int{4, 3, 5}, y: []int{4, 5, 3}, contract: axes{{0, 2}, {0, 1}}, batch: axes{{1}, {2}}},
		{x: []int{6, 1}, y: []int{1, 4}, contract: axes{{1}, {0}}},
	} {
		x, y := normal(uint64(i), c.x...), normal(uint64(i+50), c.y...)
		p := build(t, func(b *program.Builder) {
			b.Output(fmt.Sprint("dot", i), b.Input("x", x.Type).
				Dot(b.Input("y", y.Type), c.contract, c.batch))
		})
		check(t, tolerance{abs: 1e-5, rel: 1e-5}, p, map[string]reference.Tensor{"x": x, "y": y})
	}
}

// rotation is the tolerance of a rotation in single precision: each element is a sum of at most
// block terms of magnitude |x|/√block in one or several stages, with an error of a few units in the
// last place of the block's norm.
var rotation = tolerance{abs: 3e-6, rel: 1e-6}

func TestHadamard(t *testing.T) {
	for _, c := range []struct {
		shape []int
		block int
	}{
		{[]int{1}, 1}, {[]int{8}, 1}, {[]int{2}, 2}, {[]int{3, 4}, 4}, {[]int{5, 24}, 8},
		{[]int{2, 3, 32}, 16}, {[]int{64}, 64}, {[]int{3, 128}, 64},
		{[]int{7, 704}, 64}, {[]int{3, 128}, 128}, {[]int{2, 768}, 256}, {[]int{3, 512}, 512},
		{[]int{2, 2, 1024}, 1024}, {[]int{2, 4096}, 2048}, {[]int{1, 8192}, 8192},
	} {
		x := normal(uint64(c.block), c.shape...)
		p := build(t, func(b *program.Builder) {
			y := b.Input("x", x.Type).Hadamard(c.block)
			b.Output("y", y)
			b.Output("back", y.Hadamard(c.block))
		})
		check(t, rotation, p, map[string]reference.Tensor{"x": x})
		x.Floats[0] = nan
		got := run(t, p, map[string]reference.Tensor{"x": x})["y"].Floats
		for i := range got {
			if math.IsNaN(got[i]) != (i < c.block) {
				t.Fatalf("block %d: element %d is %v: exactly the first block is not finite", c.block, i,
					got[i])
			}
		}
	}
}

func TestHadamardGolden(t *testing.T) {
	f := golden.Load(t, "../../../sdk/program/reference/testdata/hadamard.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		x, dy := c.Inputs.Array("x"), c.Inputs.Array("grad_out")
		p := build(t, func(b *program.Builder) {
			typ := program.FloatType(x.Shape...)
			x, dy := b.Input("x", typ), b.Input("dy", typ)
			b.Output("y", x.Hadamard(c.Params.Int("block")))
			b.Output("dx", dy.Hadamard(c.Params.Int("block")))
		})
		got := run(t, p, map[string]reference.Tensor{"x": reference.Floats(x.Data, x.Shape...),
			"dy": reference.Floats(dy.Data, x.Shape...)})
		within := golden.Tolerance{Abs: rotation.abs, Rel: rotation.rel}
		c.Expected.CloseWithin(within, "y", got["y"].Floats)
		c.Expected.CloseWithin(within, "grad_in", got["dx"].Floats)
	})
}
