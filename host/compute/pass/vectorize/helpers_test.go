package vectorize_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/pass/vectorize"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// same compares floats bit for bit, with all NaN as one. The order of summation in a
// product is not defined, and may depend on its size: what follows from one may differ
// in the last bits.
func same(p *program.Program) cmp.Option {
	tolerance := 0.0
	if slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return n.Op == program.OpDot }) {
		tolerance = 1e-12
	}
	return cmp.Comparer(func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b) ||
			math.Abs(a-b) <= tolerance*max(1, math.Abs(a))
	})
}

type tensors = map[string]reference.Tensor

// draw makes inputs of the program's types, on the grid that randprog uses.
func draw(rng *rand.Rand, p *program.Program) tensors {
	in := tensors{}
	for _, i := range p.Inputs {
		t := reference.Tensor{Type: i.Type}
		for range i.Type.Size() {
			bits := int64(rng.Uint32())
			switch i.Type.DType {
			case program.Float:
				t.Floats = append(t.Floats, float64(bits%65-32)/8)
			case program.Int:
				t.Ints = append(t.Ints, int64(int32(bits))>>rng.IntN(32))
			case program.Uint:
				t.Ints = append(t.Ints, bits>>rng.IntN(32))
			default:
				t.Ints = append(t.Ints, bits&1)
			}
		}
		in[i.Name] = t
	}
	return in
}

// stack puts tensors of one type one after the other.
func stack(list []reference.Tensor) reference.Tensor {
	out := reference.Tensor{Type: list[0].Type}
	out.Type.Shape = slices.Concat([]int{len(list)}, list[0].Type.Shape)
	for _, t := range list {
		out.Floats, out.Ints = append(out.Floats, t.Floats...), append(out.Ints, t.Ints...)
	}
	return out
}

// check compares the vectorized program on n draws of the inputs that are not shared
// with n runs of p. Where there are products, integers must be the same, too: randprog
// writes no program in which a last bit decides over one.
func check(t *testing.T, p *program.Program, n int, shared []string, seed uint64) {
	t.Helper()
	v, err := vectorize.Program(p, n, shared...)
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	common := draw(rng, p)
	each, results := map[string][]reference.Tensor{}, map[string][]reference.Tensor{}
	for range n {
		in := draw(rng, p)
		for _, name := range shared {
			in[name] = common[name]
		}
		out, err := reference.Run(p, in)
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range in {
			each[name] = append(each[name], x)
		}
		for name, y := range out {
			results[name] = append(results[name], y)
		}
	}
	in, want := tensors{}, tensors{}
	for name, list := range each {
		in[name] = stack(list)
	}
	for _, name := range shared {
		in[name] = common[name]
	}
	for name, list := range results {
		want[name] = stack(list)
	}
	got, err := reference.Run(v, in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, same(p)); diff != "" {
		t.Errorf("-each by itself +all together:\n%s\n%s\n%s", diff, p, v)
	}
}
