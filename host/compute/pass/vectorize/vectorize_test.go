package vectorize_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/pass/vectorize"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// choose takes about every third input of the program to be shared.
func choose(rng *rand.Rand, p *program.Program) []string {
	var shared []string
	for _, i := range p.Inputs {
		if rng.IntN(3) == 0 {
			shared = append(shared, i.Name)
		}
	}
	return shared
}

func TestStackOfResults(t *testing.T) {
	seeds, seen := testlevel.Choose[uint64](100, 400), map[program.Op]int{}
	for seed := range seeds {
		p := randprog.New(seed, randprog.Options{Nodes: 30, Elements: 96}).Program
		rng := rand.New(rand.NewPCG(seed, 2))
		t.Run(fmt.Sprint(seed), func(t *testing.T) { check(t, p, 1+rng.IntN(4), choose(rng, p), seed) })
		for _, n := range p.Nodes {
			seen[n.Op]++
		}
	}
	for _, info := range program.Ops() {
		if info.Class != program.ClassLinalg && seen[info.Op] < int(seeds/20) {
			t.Errorf("%s occurs %d times", info.Name, seen[info.Op])
		}
	}
}

func TestFactorizations(t *testing.T) {
	ops := []program.Op{program.OpQR, program.OpEighValues, program.OpEighVectors, program.OpSortColumns, program.OpAdd, program.OpMul}
	for seed := range uint64(40) {
		p := randprog.New(seed, randprog.Options{Nodes: 12, Elements: 96, Ops: ops}).Program
		rng := rand.New(rand.NewPCG(seed, 2))
		check(t, p, 1+rng.IntN(4), choose(rng, p), seed)
	}
}

// TestForms pins what becomes of operations that need more than a new axis.
func TestForms(t *testing.T) {
	type value = program.Value
	contract, none := [2][]int{{1}, {0}}, [2][]int{}
	cases := []struct {
		name   string
		shared string
		f      func(b *program.Builder, x, s, v value) value // x: float[2,3], s: float, v: float[3,2]
		want   []string                                      // the lines of the nodes, for 4 copies
	}{
		{"scalar of each copy", "v", func(_ *program.Builder, x, s, _ value) value { return x.Mul(s) }, []string{
			"%3 = reshape %1 : float[4,1,1]", "%4 = mul %0 %3 : float[4,2,3]"}},
		{"scalar for all", "s", func(_ *program.Builder, x, s, _ value) value { return x.Mul(s) }, []string{
			"%3 = mul %0 %1 : float[4,2,3]"}},
		{"tensor for all with a scalar of each", "x", func(_ *program.Builder, x, s, _ value) value { return s.Sub(x) }, []string{
			"%3 = reshape %1 : float[4,1,1]", "%4 = reshape %0 : float[1,2,3]", "%5 = sub %3 %4 : float[4,2,3]"}},
		{"products in step", "s", func(_ *program.Builder, x, _, v value) value { return x.Dot(v, contract, none) }, []string{
			"%3 = dot %0 %2 lhs=[2] rhs=[1] lhs_batch=[0] rhs_batch=[0] : float[4,2,2]"}},
		{"one large product", "v", func(_ *program.Builder, x, _, v value) value { return x.Dot(v, contract, none) }, []string{
			"%3 = dot %0 %2 lhs=[2] rhs=[0] : float[4,2,2]"}},
		{"one large product from the left", "x", func(_ *program.Builder, x, _, v value) value { return x.Dot(v, contract, none) }, []string{
			"%3 = dot %0 %2 lhs=[1] rhs=[1] : float[2,4,2]", "%4 = transpose %3 axes=[1,0,2] : float[4,2,2]"}},
		{"one large product with a batch", "v", func(_ *program.Builder, x, _, v value) value {
			return x.Dot(v, [2][]int{}, [2][]int{{0}, {1}})
		}, []string{
			"%3 = dot %0 %2 lhs_batch=[1] rhs_batch=[1] : float[2,4,3,3]", "%4 = transpose %3 axes=[1,0,2,3] : float[4,2,3,3]"}},
		{"joined with what all share", "s", func(b *program.Builder, x, _, _ value) value { return x.Concatenate(1, b.Zeros(2, 1)) }, []string{
			"%3 = constant 0 : float[2,1]", "%4 = broadcast %3 axes=[1,2] : float[4,2,1]", "%5 = concatenate %0 %4 axes=[2] : float[4,2,4]"}},
		{"nothing to stack", "x", func(_ *program.Builder, x, _, _ value) value { return x.Exp() }, []string{
			"%3 = exp %0 : float[2,3]", "%4 = broadcast %3 axes=[1,2] : float[4,2,3]"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := program.NewBuilder("form")
			x, s, v := b.Input("x", program.FloatType(2, 3)), b.Input("s", program.FloatType()), b.Input("v", program.FloatType(3, 2))
			b.Output("y", c.f(b, x, s, v))
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			stacked, err := vectorize.Program(p, 4, c.shared)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(stacked.String(), "\n")
			got := strings.Join(lines[1:len(lines)-3], "\n")
			if want := "  " + strings.Join(c.want, "\n  "); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			check(t, p, 4, []string{c.shared}, 1)
		})
	}
}

// TestUnrolled: the operations without a form over an axis give each copy what it
// would get alone.
func TestUnrolled(t *testing.T) {
	b := program.NewBuilder("unrolled")
	x, lo, hi := b.Input("x", program.FloatType(3)), b.Input("lo", program.FloatType()), b.Input("hi", program.FloatType())
	key := b.Input("key", program.Type{DType: program.Uint, Shape: []int{2}})
	b.Output("clamped", x.Clamp(lo, hi))
	b.Output("bits", b.RandomBits(key, 2, 2))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, shared := range [][]string{nil, {"x"}, {"lo"}, {"hi", "key"}, {"x", "lo"}, {"lo", "hi"}, {"x", "lo", "hi", "key"}} {
		check(t, p, 3, shared, 5)
	}
}

func TestRefused(t *testing.T) {
	build := func(f func(b *program.Builder, x program.Value) program.Value) *program.Program {
		b := program.NewBuilder("refused")
		b.Output("y", f(b, b.Input("x", program.FloatType(2, 1, 1, 1, 1, 1, 1))))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := build(func(_ *program.Builder, x program.Value) program.Value { return x.Exp() })
	deep := build(func(_ *program.Builder, x program.Value) program.Value {
		return x.Exp().Reshape(1, 1, 1, 1, 2, 1, 1, 1).Neg()
	})
	for _, c := range []struct {
		p      *program.Program
		n      int
		shared string
		want   string
	}{
		{plain, 0, "", `program "refused": 0 copies`},
		{plain, 2, "z", `no input "z"`},
		{plain, 1 << 30, "", "has more than 2147483647 elements"},
		{deep, 2, "", `program "refused": %2 = reshape has the type float[1,1,1,1,2,1,1,1]: with one more axis`},
	} {
		var shared []string
		if c.shared != "" {
			shared = []string{c.shared}
		}
		_, err := vectorize.Program(c.p, c.n, shared...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error that says %q", err, c.want)
		}
	}
	if _, err := vectorize.Program(deep, 2, "x"); err == nil || !strings.Contains(err.Error(), "axes") {
		t.Errorf("an output without room for an axis: got %v", err)
	}
}

// FuzzProgram draws programs, numbers of copies and what is shared.
func FuzzProgram(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(seed), uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n, nodes uint8) {
		p := randprog.New(seed, randprog.Options{Nodes: 1 + int(nodes)%40, Elements: 96}).Program
		check(t, p, 1+int(n)%5, choose(rand.New(rand.NewPCG(seed, uint64(n))), p), seed)
	})
}

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
