package triton_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testkernel"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// searching is a program that searches a table and looks up what it finds, and another index.
func searching(t *testing.T, table []float64, rows, length int) *program.Program {
	t.Helper()
	b := program.NewBuilder("searching")
	x, other := b.Input("x", program.FloatType(rows, length)), b.Input("index", program.Type{DType: program.Int, Shape: []int{rows, length}})
	constants := b.Table(table, len(table))
	index := x.Nearest(constants)
	b.Output("index", index)
	b.Output("found", index.Lookup(constants))
	b.Output("other", other.Lookup(constants))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTables: small tables of constants in any order, with equal numbers, ties, numbers that are not finite and indices outside of the table.
func TestTables(t *testing.T) {
	const rows, length = 4, 32
	for seed := range testlevel.Sample[uint64](8, 40, 400) {
		r := rand.New(rand.NewPCG(seed, 35))
		table := make([]float64, 2+r.IntN([]int{3, 14, 62}[seed%3]))
		for i := range table {
			table[i] = float64(r.IntN(65)-32) / 8 // so that middles are numbers of x, and some numbers are equal
		}
		x, index := make([]float64, rows*length), make([]int64, rows*length)
		for i := range x {
			x[i], index[i] = float64(r.IntN(161)-80)/16, int64(r.IntN(2*len(table))-len(table)/2)
		}
		copy(x, []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e6, -1e6, math.Copysign(0, -1)})
		p := searching(t, table, rows, length)
		inputs := map[string]reference.Tensor{"x": reference.Floats(x, rows, length), "index": {Type: p.Inputs[1].Type, Ints: index}}
		k, err := testkernel.Compile(p, rows, nil)
		if err != nil || k.Kernel == nil || k.Whole != nil {
			t.Fatalf("table %v: no kernel, or not of all: %v", table, err)
		}
		got, err := k.Run(inputs)
		if err != nil {
			t.Fatal(err)
		}
		want, err := reference.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		for name := range want {
			compare(t, fmt.Sprintf("table %v: %s", table, name), got[name], want[name], 0)
		}
	}
}

// TestOtherTables: what is refused; the reason says what is not.
func TestOtherTables(t *testing.T) {
	large := make([]float64, 65)
	for i := range large {
		large[i] = float64(i)
	}
	for name, table := range map[string][]float64{"one number": {1}, "too many": large, "not finite": {1, math.Inf(1)}} {
		_, err := testkernel.Compile(searching(t, table, 4, 8), 4, nil)
		if err == nil || !strings.Contains(err.Error(), "2 to 64 finite constants") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	b := program.NewBuilder("given")
	b.Output("y", b.Input("x", program.FloatType(4, 8)).Nearest(b.Input("table", program.FloatType(3))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if k, err := testkernel.Compile(p, 4, nil); err == nil && k.Kernel != nil {
		t.Error("a table that is no constant is in a kernel")
	}
}
