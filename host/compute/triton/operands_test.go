package triton_test

import (
	"errors"
	"math"
	"regexp"
	"testing"

	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/internal/testkernel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestRepeatedRows: rows that are repeated have the elements of others beside them; a kernel would read those.
func TestRepeatedRows(t *testing.T) {
	b := program.NewBuilder("repeated")
	b.Output("y", b.Input("x", program.FloatType(2, 4, 8)).Add(b.Input("group", program.FloatType(2, 1, 8))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var refused *triton.Refusal
	if _, err := testkernel.Compile(p, 8, nil); !errors.As(err, &refused) {
		t.Errorf("the error is %v", err)
	}
}

// TestLdexpOfNaN: NaN is no integer, and stays.
func TestLdexpOfNaN(t *testing.T) {
	b := program.NewBuilder("ldexp")
	b.Output("y", b.Input("x", program.FloatType(2, 4)).Ldexp(b.Input("n", program.FloatType(2, 4))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	n := []float64{1, math.NaN(), -3, 0, 2, math.NaN(), 127, -126}
	check(t, "ldexp", p, map[string]reference.Tensor{"x": reference.Floats([]float64{1, 2, 3, 4, 5, 6, 1, 1}, 2, 4), "n": reference.Floats(n, 2, 4)})
}

// TestLargeTensors: where rows begin is counted in 64 bits, which the numbers of these tests do not need, and large models do.
func TestLargeTensors(t *testing.T) {
	b := program.NewBuilder("copy")
	b.Output("y", b.Input("x", program.FloatType(2, 8)).Neg())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := testkernel.Compile(p, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	product, err := triton.BlockProduct{Rows: 128, Columns: 16, Inner: 64, Block: 32}.Kernel(triton.Float32)
	if err != nil {
		t.Fatal(err)
	}
	for kernel, matrices := range map[*triton.Kernel][]string{
		rows.Kernel: {"in0", "out0"},
		product:     {"x", "scale_x", "y", "scale_y", "out"},
	} {
		for _, name := range matrices {
			if begins := regexp.MustCompile(`tt\.addptr %` + name + `, \S+ : !tt\.ptr<\w+>, i64\n`); !begins.MatchString(kernel.Text) {
				t.Errorf("%s begins nowhere that is counted in 64 bits:\n%s", name, kernel.Text)
			}
		}
	}
}
