package triton_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/internal/testing/testkernel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestSummed: the rows that instances write add up to the sums of all rows, for one tile and several, rows in parts, and beside other
// outputs.
func TestSummed(t *testing.T) {
	for _, tc := range []struct{ rows, length, warps int }{{2, 64, 2}, {16, 640, 2}, {8, 1664, 2}, {64, 77, 2}, {32, 256, 1000}, {4, 4608, 1}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			defer triton.SetResidentWarps(tc.warps)()
			b := program.NewBuilder("summed")
			x := b.Input("x", program.FloatType(tc.rows, tc.length))
			mean := x.MeanRow()
			b.Output("product", x.Mul(mean))
			b.Output("mean", mean)
			b.Output("x", x)
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			data, r := make([]float64, tc.rows*tc.length), rand.New(rand.NewPCG(3, 7))
			for i := range data {
				data[i] = float64(r.IntN(9))
			}
			inputs := map[string]reference.Tensor{"x": reference.Floats(data, tc.rows, tc.length)}
			k, err := testkernel.Compile(p, tc.rows, map[string]triton.Storage{"product": triton.Summed, "x": triton.Summed})
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			want, err := reference.Run(p, inputs)
			if err != nil {
				t.Fatal(err)
			}
			for _, all := range []map[string]reference.Tensor{got, want} {
				for _, name := range []string{"product", "x"} {
					sums := make([]float64, tc.length)
					for i, v := range all[name].Floats {
						sums[i%tc.length] += v
					}
					all[name] = reference.Floats(sums, tc.length)
				}
			}
			for name := range want {
				compare(t, name, got[name], want[name], 1e-6)
			}
		})
	}
}

// TestSummedRefused: what has several axes in a row is not summed.
func TestSummedRefused(t *testing.T) {
	b := program.NewBuilder("summed")
	b.Output("y", b.Input("x", program.FloatType(4, 8, 16)).Neg())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testkernel.Compile(p, 4, map[string]triton.Storage{"y": triton.Summed}); err == nil {
		t.Error("it is not refused")
	}
}
