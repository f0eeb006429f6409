package passes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// square is a call with the results x² and 3·y.
func square(t *testing.T) *program.Call {
	t.Helper()
	b := program.NewBuilder("square")
	x, y := b.Input("x", program.FloatType(2)), b.Input("y", program.FloatType(2))
	b.Output("square", x.Square())
	b.Output("triple", y.Scale(3))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &program.Call{Name: "square", Meaning: p}
}

// TestAddInCalls checks which sums become parts of calls, and that values and gradients stay.
func TestAddInCalls(t *testing.T) {
	c := square(t)
	for _, tc := range []struct {
		name string
		want int // calls that also add
		out  func(b *program.Builder, x, y program.Value) program.Value
	}{
		{"sum", 1, func(b *program.Builder, x, y program.Value) program.Value {
			z := y.Exp()
			return b.Call(c, x, y)[0].Add(z)
		}},
		{"chain", 2, func(b *program.Builder, x, y program.Value) program.Value {
			z := b.Call(c, x, y)[0].Add(x)
			return b.Call(c, z, y)[0].Add(z)
		}},
		{"addend behind the call", 0, func(b *program.Builder, x, y program.Value) program.Value {
			r := b.Call(c, x, y)
			return r[0].Add(y.Exp()).Mul(r[1])
		}},
		{"both results", 0, func(b *program.Builder, x, y program.Value) program.Value {
			r := b.Call(c, x, y)
			return r[0].Add(r[1])
		}},
		{"addend from the call", 0, func(b *program.Builder, x, y program.Value) program.Value {
			r := b.Call(c, x, y)
			return r[0].Add(r[1].Exp())
		}},
		{"second result", 0, func(b *program.Builder, x, y program.Value) program.Value {
			return b.Call(c, x, y)[1].Add(y)
		}},
		{"read twice", 0, func(b *program.Builder, x, y program.Value) program.Value {
			r := b.Call(c, x, y)
			return r[0].Add(y).Mul(r[0])
		}},
		{"repeated", 0, func(b *program.Builder, x, y program.Value) program.Value {
			return b.Call(c, x, y)[0].Add(b.Const(2))
		}},
		{"each of a circle", 0, func(b *program.Builder, x, y program.Value) program.Value {
			r, s := b.Call(c, x, y), b.Call(c, y, x)
			return r[0].Add(s[1].Exp()).Mul(s[0].Add(r[1].Exp()))
		}},
	} {
		b := program.NewBuilder(strings.ReplaceAll(tc.name, " ", "_"))
		x, y := b.Input("x", program.FloatType(2)), b.Input("y", program.FloatType(2))
		b.Output("out", tc.out(b, x, y))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		compareSums(t, p, tc.want)
		vjp, err := autodiff.VJP(p, "out", "x", "y")
		if err != nil {
			t.Fatal(err)
		}
		compareSums(t, vjp, -1)
	}
}

// compareSums compares p before and after, and the number of calls that add, unless it is negative.
func compareSums(t *testing.T, p *program.Program, want int) {
	t.Helper()
	after, err := passes.AddInCalls(p, "square")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[*program.Call]bool{}
	for _, n := range after.Nodes {
		if c := n.Attr.Call; c != nil && c.Adds {
			sums[c] = true
		}
	}
	if want >= 0 && len(sums) != want {
		t.Errorf("%s: %d calls add, want %d:\n%s", p.Name, len(sums), want, after)
	}
	in := map[string]reference.Tensor{"x": reference.Floats([]float64{0.3, -1.2}, 2),
		"y": reference.Floats([]float64{0.5, 2}, 2)}
	if p.Input("d.out") >= 0 {
		in["d.out"] = reference.Floats([]float64{0.7, -1.1}, 2)
	}
	run := func(p *program.Program) map[string]reference.Tensor {
		out, err := reference.Run(p, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if diff := cmp.Diff(run(p), run(after), cmpopts.EquateApprox(1e-14, 0)); diff != "" {
		t.Errorf("%s: %s\n%s", p.Name, diff, after)
	}
}

// TestAddInGradient checks that an adjoint's sum is one with the call of the adjoint.
func TestAddInGradient(t *testing.T) {
	b := program.NewBuilder("residual")
	x, y := b.Input("x", program.FloatType(2)), b.Input("y", program.FloatType(2))
	b.Output("out", x.Add(b.Call(square(t), x, y)[0]))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if p, err = autodiff.VJP(p, "out", "x"); err == nil {
		p, err = passes.AddInCalls(p, "square")
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := "%3 = square.vjp.sum %0 %1 %2 %2 : float[2]\n"; !strings.Contains(p.String(), want) {
		t.Errorf("got\n%swant %s", p, want)
	}
}
