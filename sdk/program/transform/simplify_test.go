package transform_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// bitwise compares bits: −0 differs from 0, NaN equals NaN.
var bitwise = cmp.Comparer(func(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || (math.IsNaN(a) && math.IsNaN(b))
})

func TestSameBits(t *testing.T) {
	shorter := 0
	for seed := range uint64(300) {
		c := randprog.New(seed, randprog.Options{Nodes: 40})
		s, err := transform.Simplify(c.Program)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want, err := reference.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := reference.Run(s, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, bitwise); diff != "" {
			t.Errorf("seed %d: -want +got:\n%s\n%s\n%s", seed, diff, c.Program, s)
		}
		if len(s.Nodes) < len(c.Program.Nodes) {
			shorter++
		}
		again, err := transform.Simplify(s)
		if err != nil {
			t.Fatal(err)
		}
		if again.Hash() != s.Hash() {
			t.Errorf("seed %d: simplifying twice changes the program again:\n%s\n%s", seed, s, again)
		}
	}
	if shorter < 100 {
		t.Errorf("only %d of 300 programs became shorter", shorter)
	}
}

func TestRules(t *testing.T) {
	type value = program.Value
	cases := []struct {
		name string
		f    func(b *program.Builder, x, y value) value // x, y: float[2,3]
		want string                                     // the remaining operations
	}{
		{"equal operations", func(b *program.Builder, x, y value) value { return x.Exp().Add(x.Exp()) },
			"exp add"},
		{"either order", func(b *program.Builder, x, y value) value { return x.Mul(y).Sub(y.Mul(x)) },
			"mul sub"},
		{"not either order", func(b *program.Builder, x, y value) value { return x.Sub(y).Mul(y.Sub(x)) },
			"sub sub mul"},
		{"negation of a negation",
			func(b *program.Builder, x, y value) value { return x.Neg().Neg().Exp() }, "exp"},
		{"not of not", func(b *program.Builder, x, y value) value { return x.Lt(y).Not().Not() }, "lt"},
		{"sum with a negation", func(b *program.Builder, x, y value) value { return x.Add(y.Neg()) },
			"sub"},
		{"negation with a sum", func(b *program.Builder, x, y value) value { return x.Neg().Add(y) },
			"sub"},
		{"difference with a negation",
			func(b *program.Builder, x, y value) value { return x.Sub(y.Neg()) }, "add"},
		{"times one", func(b *program.Builder, x, y value) value {
			return b.Const(1).Mul(x.Scale(1)).Exp()
		}, "exp"},
		{"times a full one",
			func(b *program.Builder, x, y value) value { return x.Mul(b.Full(1, 2, 3)).Exp() }, "exp"},
		{"one gives the shape",
			func(b *program.Builder, x, y value) value {
				return x.SumAll().Mul(b.Full(1, 2, 3))
			}, "reduce_sum constant mul"},
		{"over one", func(b *program.Builder, x, y value) value {
			return x.Div(b.Const(1)).Pow(b.Const(1)).Exp()
		}, "exp"},
		{"minus zero", func(b *program.Builder, x, y value) value { return x.Sub(b.Const(0)).Exp() },
			"exp"},
		{"plus zero is not nothing", func(b *program.Builder, x, y value) value { return x.Shift(0) },
			"constant add"},
		{"minus −0 is not nothing",
			func(b *program.Builder, x, y value) value {
				return x.Sub(b.Const(math.Copysign(0, -1)))
			}, "constant sub"},
		{"times zero is not zero", func(b *program.Builder, x, y value) value { return x.Scale(0) },
			"constant mul"},
		{"larger of itself", func(b *program.Builder, x, y value) value { return x.Max(x).Exp() }, "exp"},
		{"clamp to the same bounds",
			func(b *program.Builder, x, y value) value {
				return x.Clip(-1, 2).Clip(-1, 2).Exp()
			}, "constant constant clamp exp"},
		{"clamp to other bounds",
			func(b *program.Builder, x, y value) value {
				return x.Clip(-1, 2).Clip(-2, 2)
			}, "constant constant clamp constant clamp"},
		{"either way", func(b *program.Builder, x, y value) value { return x.Lt(y).Select(x, x).Exp() },
			"exp"},
		{"negated condition",
			func(b *program.Builder, x, y value) value { return x.Lt(y).Not().Select(x, y) }, "lt select"},
		{"conversion to the same",
			func(b *program.Builder, x, y value) value { return x.Convert(program.Float).Exp() }, "exp"},
		{"bitcast of floats rounds",
			func(b *program.Builder, x, y value) value { return x.Bitcast(program.Float) }, "bitcast"},
		{"bitcast of bits", func(b *program.Builder, x, y value) value {
			return x.Bitcast(program.Int).Bitcast(program.Int)
		}, "bitcast"},
		{"reshapes", func(b *program.Builder, x, y value) value {
			return x.Reshape(6).Reshape(3, 2).Reshape(2, 3).Exp()
		}, "exp"},
		{"transposes", func(b *program.Builder, x, y value) value {
			return x.Transpose(1, 0).Transpose(1, 0).Exp()
		}, "exp"},
		{"broadcasts", func(b *program.Builder, x, y value) value {
			return x.Broadcast([]int{2, 4, 3}, []int{0, 2}).Broadcast([]int{2, 4, 3, 2}, []int{0, 1, 2})
		}, "broadcast"},
		{"whole slice", func(b *program.Builder, x, y value) value {
			return x.Slice([]int{0, 0}, []int{2, 3}, []int{1, 1}).Exp()
		}, "exp"},
		{"one part", func(b *program.Builder, x, y value) value { return x.Concatenate(0).Exp() }, "exp"},
		{"rotation of one", func(b *program.Builder, x, y value) value { return x.Hadamard(1).Exp() },
			"exp"},
		{"repeated operand", func(b *program.Builder, x, y value) value {
			return x.Mul(y.MaxRow().Broadcast([]int{2, 3}, []int{0, 1}))
		}, "reduce_max reshape mul"},
		{"repeated scalar", func(b *program.Builder, x, y value) value {
			return x.Mul(y.SumAll().Broadcast([]int{2, 3}, nil))
		}, "reduce_sum mul"},
		{"stop_gradient stays",
			func(b *program.Builder, x, y value) value {
				return x.StopGradient().StopGradient()
			}, "stop_gradient stop_gradient"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := program.NewBuilder("test")
			x, y := b.Input("x", program.FloatType(2, 3)), b.Input("y", program.FloatType(2, 3))
			b.Output("out", c.f(b, x, y))
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			s, err := transform.Simplify(p)
			if err != nil {
				t.Fatal(err)
			}
			var ops []string
			for _, n := range s.Nodes {
				ops = append(ops, n.Op.String())
			}
			if got := strings.Join(ops, " "); got != c.want {
				t.Errorf("left: %s; want: %s\n%s", got, c.want, s)
			}
		})
	}
}

func TestConstantsMergeByValueAndType(t *testing.T) {
	b := program.NewBuilder("constants")
	one, two := b.Table([]float64{1, 2}, 2), b.Table([]float64{1, 2}, 2)
	zero, negative := b.Table([]float64{0, 2}, 2), b.Table([]float64{math.Copysign(0, -1), 2}, 2)
	b.Output("a", one.Exp().Add(two.Exp()))
	b.Output("b", zero.Exp().Add(negative.Exp()))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	s, err := transform.Simplify(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(s.Nodes); got != 3+5 {
		t.Errorf("%d nodes, want 8:\n%s", got, s)
	}
}

func TestSimplifierKeepsTheFirstMistake(t *testing.T) {
	b := program.NewSimplifier("wrong")
	x := b.Input("x", program.FloatType(2))
	b.Output("y", x.Add(b.Input("n", program.FloatType(3))).Exp())
	if _, err := b.Build(); err == nil ||
		!strings.Contains(err.Error(), "add: shapes [2] and [3] do not match") {
		t.Errorf("got %v", err)
	}
}

func ExampleProgram() {
	b := program.NewBuilder("wasteful")
	x := b.Input("x", program.FloatType(2, 3))
	b.Output("y", x.Scale(1).Transpose(1, 0).Transpose(1, 0).Exp().Add(x.Exp()))
	p, _ := b.Build()
	s, err := transform.Simplify(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(s)
	// Output:
	// program wasteful(%0 x: float[2,3]) {
	//   %1 = exp %0 : float[2,3]
	//   %2 = add %1 %1 : float[2,3]
	//   return y=%2
	// }
}
