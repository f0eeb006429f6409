package randprog_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func update(seed uint64, o randprog.UpdateOptions) randprog.Case {
	return randprog.NewUpdate(rand.New(rand.NewPCG(seed, 21)), o)
}

// TestUpdatesAreUpdates checks that the programs contain everything that executors must be tested
// with.
func TestUpdatesAreUpdates(t *testing.T) {
	testlevel.Long(t, "generates hundreds of programs")
	seen := map[string]int{}
	for seed := range uint64(seeds) {
		for _, family := range randprog.Families {
			c := update(seed, randprog.UpdateOptions{Family: family, Exact: seed%2 == 0})
			for _, what := range traits(t, c) {
				seen[string(family)+" "+what]++
			}
		}
	}
	for family, list := range map[randprog.Family][]string{
		randprog.Elementwise: {"select", "reduce_sum", "reduce_max", "reshape", "hadamard",
			"scalar reshape",
			"log", "clamp", "number as a bound"},
		randprog.General: {"dot", "broadcast", "slice", "concatenate", "transpose", "reshape", "stack",
			"scalar reshape",
			"product of one element", "convert", "spread number"},
	} {
		for _, what := range append(list, "in place", "axis of 1", "NaN", "infinity", "-0", "subnormal") {
			if n := seen[string(family)+" "+what]; n < seeds/40 {
				t.Errorf("%s programs: %s occurs in %d of %d", family, what, n, seeds)
			}
		}
	}
}

// traits returns the properties of a program and its inputs.
func traits(t *testing.T, c randprog.Case) []string {
	has := map[string]bool{}
	for _, in := range c.Program.Inputs {
		if in.Type.DType != program.Float {
			t.Fatalf("input %s is %s", in.Name, in.Type)
		}
		for _, v := range c.Inputs[in.Name].Floats {
			has["NaN"] = has["NaN"] || v != v
			has["infinity"] = has["infinity"] || math.IsInf(v, 0)
			has["-0"] = has["-0"] || v == 0 && math.Signbit(v)
			has["subnormal"] = has["subnormal"] || v != 0 && math.Abs(v) < 0x1p-126
		}
	}
	for _, n := range c.Program.Nodes {
		has[n.Op.String()] = true
		has["stack"] = has["stack"] || n.Op == program.OpDot && len(n.Attr.LhsBatch) > 0
		has["scalar reshape"] = has["scalar reshape"] || n.Op == program.OpReshape && n.Type.Size() == 1
		has["product of one element"] = has["product of one element"] || n.Op == program.OpDot &&
			n.Type.Size() == 1
		has["number as a bound"] = has["number as a bound"] || n.Op == program.OpClamp &&
			!isConstant(c.Program.Node(n.Args[1]))
		has["spread number"] = has["spread number"] || n.Op == program.OpBroadcast &&
			c.Program.TypeOf(n.Args[0]).IsScalar()
		for _, d := range n.Type.Shape {
			has["axis of 1"] = has["axis of 1"] || d == 1
		}
	}
	for _, o := range c.Program.Outputs {
		has["in place"] = has["in place"] || c.Program.Input(o.Name) >= 0
	}
	var list []string
	for what, yes := range has {
		if yes {
			list = append(list, what)
		}
	}
	return list
}

func isConstant(n *program.Node) bool { return n != nil && n.Op == program.OpConstant }

// TestSmoothUpdatesAreSmooth checks that rounding every result changes the outputs only slightly,
// in nearly all programs.
func TestSmoothUpdatesAreSmooth(t *testing.T) {
	testlevel.Long(t, "generates hundreds of programs")
	for _, family := range randprog.Families {
		large := 0
		for seed := range uint64(seeds) {
			c := update(seed, randprog.UpdateOptions{Family: family})
			exact, err := reference.Run(c.Program, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			single, err := reference.Run32(c.Program, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range exact {
				size := 1.0
				for _, v := range want.Floats {
					size = max(size, math.Abs(v))
				}
				if !(size < 1e4) {
					large++
					break
				}
				for i, v := range want.Floats {
					if d := math.Abs(single[name].Floats[i] - v); !(d <= 2e-5*size) {
						t.Fatalf("%s, seed %d: %s[%d] is %v in binary64, %v in binary32\n%s", family, seed, name, i,
							v, single[name].Floats[i], c.Program)
					}
				}
			}
		}
		if large > seeds/20 {
			t.Errorf("%s: %d of %d programs have large results", family, large, seeds)
		}
	}
}

// TestExactUpdatesAreNotEmpty checks that most programs return several different finite numbers.
func TestExactUpdatesAreNotEmpty(t *testing.T) {
	testlevel.Long(t, "generates hundreds of programs")
	for _, family := range randprog.Families {
		lively := 0
		for seed := range uint64(seeds) {
			c := update(seed, randprog.UpdateOptions{Family: family, Exact: true})
			out, err := reference.Run32(c.Program, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			values := map[float64]bool{}
			for _, o := range out {
				for _, v := range o.Floats {
					if v == v && !math.IsInf(v, 0) {
						values[v] = true
					}
				}
			}
			if len(values) > 1 {
				lively++
			}
		}
		t.Logf("%s: %d of %d programs give several numbers", family, lively, seeds)
		if lively < seeds*6/10 {
			t.Errorf("%s: only %d of %d programs give several numbers", family, lively, seeds)
		}
	}
}

func TestBytesDecide(t *testing.T) {
	o := randprog.UpdateOptions{Family: randprog.General, Exact: true}
	text := func(data []byte) string {
		return randprog.NewUpdate(randprog.Bytes(data), o).Program.String()
	}
	a := []byte("some bytes that decide what is drawn, one after the other, until they end")
	b := append([]byte{}, a...)
	b[0] += 100
	if diff := cmp.Diff(text(a), text(a)); diff != "" {
		t.Error(diff)
	}
	if text(a) == text(b) {
		t.Error("another first byte gives the same program")
	}
}
