package cpu_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/testing/testrows"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// rowsOf returns the number of rows of the largest input.
func rowsOf(p *program.Program) int {
	n, largest := 1, int64(0)
	for _, in := range p.Inputs {
		if size := in.Type.Size(); size > largest && len(in.Type.Shape) > 0 {
			largest, n = size, int(size)/in.Type.Shape[len(in.Type.Shape)-1]
		}
	}
	return n
}

// TestRandomPrograms compares each output of random programs, of any type, with the reference
// implementation in double precision, with the tolerance of package lower for such programs. Many
// programs read several rows at once and are refused; the others are counted.
func TestRandomPrograms(t *testing.T) {
	seeds, computed := testlevel.Sample[uint64](100, 1000, 20000), 0
	seen := map[program.Op]int{}
	for seed := range seeds {
		c := randprog.New(seed,
			randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]})
		for _, o := range c.Program.Outputs {
			p, err := transform.Trim(c.Program, o.Name)
			if err != nil {
				t.Fatal(err)
			}
			if check(t, fmt.Sprint(seed), p, c.Inputs) {
				computed++
				for _, n := range p.Nodes {
					seen[n.Op]++
				}
			}
		}
	}
	t.Logf("%d outputs are computed by rows", computed)
	if computed < int(seeds) { // a program has several outputs
		t.Errorf("%d outputs are computed by rows, want at least %d: the others were not tested",
			computed, seeds)
	}
	for _, op := range cpu.Operations() {
		if seen[op] == 0 && !testing.Short() {
			t.Errorf("no program has the operation %s", op)
		}
	}
}

// FuzzPrograms is TestRandomPrograms with programs chosen by the fuzzer.
func FuzzPrograms(f *testing.F) {
	f.Add([]byte("rows"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rng := randprog.Bytes(data)
		c := randprog.New(rng.Uint64(),
			randprog.Options{Nodes: 1 + rng.IntN(40), Elements: 1 + rng.IntN(500)})
		for _, o := range c.Program.Outputs {
			p, err := transform.Trim(c.Program, o.Name)
			if err != nil {
				t.Fatal(err)
			}
			check(t, "fuzzed", p, c.Inputs)
		}
	})
}

// check compares the only output of a program with that of the reference implementation, and
// reports whether any part of it is computed row by row.
func check(t *testing.T, name string, p *program.Program, inputs map[string]reference.Tensor) bool {
	t.Helper()
	got, ok, err := testrows.Run(p, rowsOf(p), nil, inputs)
	if refused := (*passes.Refusal)(nil); errors.As(err, &refused) || err == nil && !ok {
		return false
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	want, err := reference.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		compare(t, name+" "+o.Name, got[o.Name], want[o.Name], 2e-4)
	}
	if t.Failed() {
		t.Fatalf("%s", p)
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

var nan = math.NaN()

// random returns a tensor of random elements. Floats are normally distributed.
func random(rng *rand.Rand, t program.Type) reference.Tensor {
	x := reference.Tensor{Type: t}
	for range t.Size() {
		switch t.DType {
		case program.Float:
			x.Floats = append(x.Floats, float64(float32(rng.NormFloat64())))
		case program.Bool:
			x.Ints = append(x.Ints, int64(rng.IntN(2)))
		default:
			x.Ints = append(x.Ints, int64(rng.IntN(1000)))
		}
	}
	return x
}
