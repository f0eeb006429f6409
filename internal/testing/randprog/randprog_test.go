package randprog_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

const seeds = 400

func TestEveryOperationOccurs(t *testing.T) {
	seen := map[program.Op]int{}
	for seed := range uint64(seeds) {
		for _, n := range randprog.New(seed, randprog.Options{}).Program.Nodes {
			seen[n.Op]++
		}
	}
	for _, info := range program.Ops() {
		linalg := info.Class == program.ClassLinalg
		if n := seen[info.Op]; (n >= 20) == linalg {
			t.Errorf("%s occurs %d times in %d programs", info.Name, n, seeds)
		}
	}
}

func TestFactorizationsOnRequest(t *testing.T) {
	ops := []program.Op{program.OpQR, program.OpEighValues, program.OpEighVectors, program.OpAdd}
	c := randprog.New(1, randprog.Options{Ops: ops})
	seen := map[program.Op]bool{}
	for _, n := range c.Program.Nodes {
		seen[n.Op] = true
	}
	for _, op := range ops {
		if !seen[op] {
			t.Errorf("%s does not occur", op)
		}
	}
	if _, err := reference.Run(c.Program, c.Inputs); err != nil {
		t.Error(err)
	}
}

func TestEqualSeedsGiveEqualCases(t *testing.T) {
	a, b := randprog.New(7, randprog.Options{}), randprog.New(7, randprog.Options{})
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if c := randprog.New(8, randprog.Options{}); c.Program.Hash() == a.Program.Hash() {
		t.Error("seeds 7 and 8 give the same program")
	}
}

func TestNoValueIsTooLarge(t *testing.T) {
	for seed := range uint64(seeds) {
		c := randprog.New(seed, randprog.Options{Nodes: 40, Elements: 64})
		for i, n := range c.Program.Nodes {
			// Inputs have up to 2·5·8 elements, which is more than the limit.
			if n.Type.Size() > 80 {
				t.Errorf("seed %d: node %d is %s", seed, i, n.Type)
			}
		}
	}
}

// TestWellConditioned checks that rounding every result to float32 changes no integer and no bool,
// and floats only slightly.
func TestWellConditioned(t *testing.T) {
	for seed := range uint64(seeds) {
		c := randprog.New(seed, randprog.Options{Nodes: 40})
		exact, err := reference.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		single, err := reference.Run32(c.Program, c.Inputs)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for name, want := range exact {
			if err := compare(want, single[name]); err != nil {
				t.Errorf("seed %d: %s: %v\n%s", seed, name, err, c.Program)
			}
		}
	}
}

func compare(want, got reference.Tensor) error {
	scale := 1.0
	for _, v := range want.Floats {
		scale = max(scale, math.Abs(v))
	}
	for i, v := range want.Floats {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("element %d is %v", i, v)
		}
		// Each of the 40 operations adds an error of 2⁻²⁴ and may amplify earlier errors.
		if d := math.Abs(got.Floats[i] - v); d > 1e-4*scale {
			return fmt.Errorf("element %d: %v in binary64, %v in binary32", i, v, got.Floats[i])
		}
	}
	if diff := cmp.Diff(want.Ints, got.Ints); diff != "" {
		return fmt.Errorf("integers differ: %s", diff)
	}
	return nil
}
