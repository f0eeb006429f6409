package triton_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// TestRepeatedRows checks that programs that repeat rows are refused: a kernel would read the
// adjacent rows instead.
func TestRepeatedRows(t *testing.T) {
	b := program.NewBuilder("repeated")
	b.Output("y", b.Input("x", program.FloatType(2, 4, 8)).
		Add(b.Input("group", program.FloatType(2, 1, 8))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var refused *passes.Refusal
	if _, err := testkernel.Compile(p, 8, nil); !errors.As(err, &refused) {
		t.Errorf("the error is %v", err)
	}
}

// TestLdexpOfNaN checks that an exponent of NaN gives NaN.
func TestLdexpOfNaN(t *testing.T) {
	b := program.NewBuilder("ldexp")
	b.Output("y", b.Input("x", program.FloatType(2, 4)).Ldexp(b.Input("n", program.FloatType(2, 4))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	n := []float64{1, math.NaN(), -3, 0, 2, math.NaN(), 127, -126}
	check(t, "ldexp", p,
		map[string]reference.Tensor{"x": reference.Floats([]float64{1, 2, 3, 4, 5, 6, 1, 1}, 2, 4),
			"n": reference.Floats(n, 2, 4)})
}

// TestCountsOfUndividedAxes checks an iota along each axis of one row: 0 along axes of size 1.
func TestCountsOfUndividedAxes(t *testing.T) {
	for axis := range 3 {
		b := program.NewBuilder("count")
		x := b.Input("x", program.FloatType(1, 1, 3))
		b.Output("y", x.Add(b.Iota(program.FloatType(1, 1, 3), axis)))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		check(t, fmt.Sprint("axis ", axis), p,
			map[string]reference.Tensor{"x": reference.Floats([]float64{1, 2, 3}, 1, 1, 3)})
	}
}

// TestLargeTensors checks that offsets of rows have 64 bits, which large models need and these
// tests do not.
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
	for _, name := range []string{"in0", "out0"} {
		if begins := regexp.MustCompile(`tt\.addptr %` + name +
			`, \S+ : !tt\.ptr<\w+>, i64\n`); !begins.MatchString(rows.Kernel.Text) {
			t.Errorf("%s begins nowhere that is counted in 64 bits:\n%s", name, rows.Kernel.Text)
		}
	}
}

// TestRandomPrograms compares each output of random programs, of any type, with the reference
// implementation in double precision, with the tolerance of package lower for such programs. Many
// programs read several rows at once and are refused; the others are counted.
func TestRandomPrograms(t *testing.T) {
	seeds, kernels := testlevel.Sample[uint64](24, 200, 400), 0
	seen := map[program.Op]int{}
	for seed := range seeds {
		o := randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]}
		if seed%4 > 0 { // programs with unsupported operations are mostly refused
			o.Ops = triton.Operations()
		}
		if seed%4 == 1 { // it is rarely in a program that is a kernel
			o.Ops = append(slices.Repeat([]program.Op{program.OpHadamard}, 9), o.Ops...)
		}
		c := randprog.New(seed, o)
		for _, o := range c.Program.Outputs {
			p, err := transform.Trim(c.Program, o.Name)
			if err != nil {
				t.Fatal(err)
			}
			if check(t, fmt.Sprint(seed), p, c.Inputs) {
				kernels++
				for _, n := range p.Nodes {
					seen[n.Op]++
				}
			}
		}
	}
	t.Logf("%d kernels", kernels)
	if kernels < int(seeds) { // a program has several outputs
		t.Errorf("%d outputs are kernels, want at least %d: the others were not tested", kernels, seeds)
	}
	for _, op := range triton.Operations() {
		if seen[op] == 0 && !testing.Short() {
			t.Errorf("no kernel has the operation %s", op)
		}
	}
}

// check compares the only output of a program with that of the reference implementation, and
// reports whether any part of it is a kernel.
func check(t *testing.T, name string, p *program.Program, inputs map[string]reference.Tensor) bool {
	t.Helper()
	k, err := testkernel.Compile(p, testkernel.Rows(p), nil)
	var refused *passes.Refusal
	if errors.As(err, &refused) || err == nil && k.Kernel == nil {
		return false
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, p)
	}
	got, err := k.Run(inputs)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, p)
	}
	want, err := reference.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		compare(t, name+" "+o.Name, got[o.Name], want[o.Name], 2e-4)
	}
	if t.Failed() {
		t.Fatalf("%s\n%s", p, k.Kernel.Text)
	}
	return true
}

// compare checks that integers are equal, and floats within the tolerance relative to the largest.
func compare(t *testing.T, name string, got, want reference.Tensor, relative float64) {
	t.Helper()
	if len(got.Floats) != len(want.Floats) || len(got.Ints) != len(want.Ints) {
		t.Errorf("%s: %d floats and %d integers, want %d and %d", name, len(got.Floats), len(got.Ints),
			len(want.Floats), len(want.Ints))
		return
	}
	largest := 1.0
	for _, x := range want.Floats {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i, x := range want.Floats {
		if g := got.Floats[i]; !(math.Abs(g-x) <= relative*largest) && g != x &&
			!(math.IsNaN(g) && math.IsNaN(x)) {
			t.Errorf("%s: element %d is %v, want %v", name, i, g, x)
			return
		}
	}
	for i, n := range want.Ints {
		if got.Ints[i] != n {
			t.Errorf("%s: element %d is %d, want %d", name, i, got.Ints[i], n)
			return
		}
	}
}
