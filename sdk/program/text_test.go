package program_test

import (
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// everyAttribute returns a program with each attribute.
func everyAttribute(t *testing.T) *program.Program {
	t.Helper()
	b := program.NewBuilder("every/attribute-1.0")
	x := b.Input("x", fl(4, 8))
	key := b.Input("key", un(2))
	table := b.Table([]float64{0.5, -0.25, math.Inf(1), math.NaN(), 1e-30, math.Copysign(0, -1), 7,
		8}, 8)
	long := b.Table(make([]float64, 32), 4, 8)
	ints := b.Apply(program.OpConstant, attr{Ints: []int64{-1, 2}}, in(2))
	b.Output("a", x.Mul(table.Reshape(1, 8)).Add(long).Hadamard(4).Transpose(1, 0))
	b.Output("b", x.Dot(x, [2][]int{{1}, {1}}, [2][]int{{0}, {0}}))
	b.Output("c", x.Slice([]int{0, 1}, []int{4, 8}, []int{1, 3}).ReduceSum(0, 1).
		Broadcast([]int{2, 2}, nil))
	b.Output("d", ints.Broadcast([]int{3, 2}, []int{1}).Concatenate(0, b.Iota(in(3, 2), 1)).
		ReduceMax(0))
	b.Output("e", b.RandomBits(key, 3).Shr(b.ConstUint(8)).Convert(program.Float).Lt(b.Const(0.5)))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTextForm(t *testing.T) {
	want, err := os.ReadFile("testdata/every_attribute.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), everyAttribute(t).String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestHashIsStable checks that the hash does not change: it names programs in files that outlive a
// version.
func TestHashIsStable(t *testing.T) {
	const want = "fb5b0d384b24163ff8aa6f0988cab82e163454bbbf2680dce0734fc1c9f21659"
	if got := everyAttribute(t).Hash(); got != want {
		t.Errorf("the hash is %s, was %s", got, want)
	}
}

func TestHashTellsProgramsApart(t *testing.T) {
	base := scaled(t, 3, 2).Hash()
	if again := scaled(t, 3, 2).Hash(); again != base {
		t.Error("equal programs have different hashes")
	}
	long := func(last float64) *program.Program {
		data := make([]float64, 100)
		data[99] = last
		b := program.NewBuilder("long")
		b.Output("y", b.Table(data, 100))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if long(0).Hash() == long(1).Hash() || long(0).Hash() == long(math.Copysign(0, -1)).Hash() {
		t.Error("an element that the text form does not show is not hashed")
	}
	for name, p := range map[string]*program.Program{"constant": scaled(t, 3.0000000000000004, 2),
		"shape": scaled(t, 3, 2, 1)} {
		if p.Hash() == base {
			t.Errorf("another %s gives the same hash", name)
		}
	}
	seen := map[string]uint64{}
	for seed := range uint64(200) {
		hash := randprog.New(seed, randprog.Options{}).Program.Hash()
		if other, ok := seen[hash]; ok {
			t.Errorf("seeds %d and %d have one hash", seed, other)
		}
		seen[hash] = seed
	}
}

func TestTypeText(t *testing.T) {
	for want, got := range map[string]program.Type{
		"float": fl(), "float[2,3]": fl(2, 3), "int[1]": in(1), "uint": un(), "bool[4]": bo(4),
		"invalid": {}, "dtype(9)": {DType: 9},
	} {
		if got.String() != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
