package triton_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestQuotients checks that quotients of tiles, and by one number for each row, are rounded to
// nearest, also for infinities, zeros and NaN.
func TestQuotients(t *testing.T) {
	const rows, length = 8, 256
	r := rand.New(rand.NewPCG(1, 37))
	x, y, s := make([]float64, rows*length), make([]float64, rows*length), make([]float64, rows)
	for i := range x {
		x[i], y[i] = float64(float32(r.NormFloat64())),
			float64(float32(r.NormFloat64()*math.Exp2(float64(r.IntN(60)-30))))
	}
	for i, v := range []float64{0, math.Inf(1), math.NaN(), -1} {
		x[i], y[4+i], y[2*length+i] = v, v, v
		for row := 1; row < rows; row++ {
			x[row*length+i] = v
		}
	}
	copy(s, []float64{0.3, 1.7e9, 0, math.Inf(1), -0.0007, 0.25, 1e-25, float64(float32(1.0000001))})
	b := program.NewBuilder("quotients")
	p := b.Input("x", program.FloatType(rows, length))
	q := b.Input("y", program.FloatType(rows, length))
	row := b.Input("s", program.FloatType(rows, 1))
	b.Output("tile", p.Div(q))
	b.Output("row", p.Div(row))
	b.Output("reciprocal", b.Const(1).Div(q))
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]reference.Tensor{"x": reference.Floats(x, rows, length),
		"y": reference.Floats(y, rows, length), "s": reference.Floats(s, rows, 1)}
	k, err := testkernel.Compile(built, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	compareAll(t, k, built, inputs)
}

// compareAll compares all outputs of a kernel with those of the reference implementation in
// float32, bit for bit.
func compareAll(
	t *testing.T, k *testkernel.Program, p *program.Program, inputs map[string]reference.Tensor,
) {
	t.Helper()
	got, err := k.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		compare(t, name, got[name], want[name], 0)
	}
}

// TestTilings compares kernels with several tiles per instance, rows of several parts, and
// rotations of several sizes with the reference implementation. Code that does not depend on the
// tile must precede the loop.
func TestTilings(t *testing.T) {
	defer triton.SetResidentWarps(2)()
	for _, tc := range []struct{ rows, length, block int }{{2048, 8, 0}, {16, 640, 128}, {16, 384, 32},
		{4, 1792, 256}, {8, 1664, 128}, {8, 4608, 512}, {4, 1024, 1024}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			b := program.NewBuilder("tiling")
			x := b.Input("x", program.FloatType(tc.rows, tc.length))
			z := x
			if tc.block > 0 {
				z = x.Hadamard(tc.block)
			}
			b.Output("y", z.Div(z.Mul(z).MeanRow().Sqrt()))
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(uint64(tc.length), 1))
			data := make([]float64, tc.rows*tc.length)
			for i := range data {
				data[i] = float64(float32(r.NormFloat64()))
			}
			inputs := map[string]reference.Tensor{"x": reference.Floats(data, tc.rows, tc.length)}
			k, err := testkernel.Compile(p, tc.rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			want, err := reference.Run32(p, inputs)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "y", got["y"], want["y"], 1e-4)
			if _, each, loop := strings.Cut(k.Kernel.Text, "scf.for"); !loop || tc.block > 0 &&
				strings.Contains(each, "arith.shrui") {
				t.Errorf("there is no loop over tiles, or signs are made again for each:\n%s", k.Kernel.Text)
			}
		})
	}
}

// TestCodesNeedRegisters checks that a kernel has more warps, hence fewer elements per thread, if
// it writes codes of four bits besides values.
func TestCodesNeedRegisters(t *testing.T) {
	const rows, length = 64, 1664
	warps := func(codes bool) int {
		b := program.NewBuilder("codes")
		x := b.Input("x", program.FloatType(rows, length))
		b.Output("y", x.Div(x.Abs().MaxRow()))
		if codes {
			b.Output("packed", x.Reshape(rows, length/2, 2).SumRow())
		}
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		k, err := triton.New(p, rows, triton.LargestRow, map[string]passes.Storage{"packed": passes.Int8})
		if err != nil {
			t.Fatal(err)
		}
		return k.Warps
	}
	if without, with := warps(false), warps(true); with <= without {
		t.Errorf("%d warps with codes and %d without: want more", with, without)
	}
}
