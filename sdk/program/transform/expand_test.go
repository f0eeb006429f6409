package transform_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// TestExpandAgain expands a call and its adjoint, around a call that stays: the backward pass reads
// what the forward pass has computed, or computes it again by a call of its own.
func TestExpandAgain(t *testing.T) {
	inner := program.NewBuilder("inner")
	x := inner.Input("x", program.FloatType(3))
	inner.Output("y", x.Tanh())
	tanh := &program.Call{Name: "tanh", Meaning: built(t, inner)}
	outer := program.NewBuilder("outer")
	x = outer.Input("x", program.FloatType(3))
	outer.Output("y", outer.Call(tanh, x)[0].Square())
	block := &program.Call{Name: "block", Meaning: built(t, outer)}
	b := program.NewBuilder("model")
	x = b.Input("x", program.FloatType(3))
	b.Output("y", b.Call(block, x)[0])
	forward := built(t, b)
	vjp, err := autodiff.VJP(forward, "y", "x")
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewSimplifier("step")
	in := transform.Inputs(b, forward, nil)[:1]
	b.Output("y", transform.Inline(b, forward, in...)["y"])
	b.Output("d", transform.Inline(b, vjp, in[0], b.Full(1, 3))["d.x"])
	step := built(t, b)

	inputs := map[string]reference.Tensor{"x": reference.Floats([]float64{-1, 0.5, 2}, 3)}
	want, err := reference.Run(step, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for again, calls := range map[string]int{"": 1, "block": 2} {
		keep := func(c *program.Call) bool { return c.Name == "tanh" || c.Name == "tanh.vjp" }
		p, err := transform.Expand(step, keep, again)
		if err != nil {
			t.Fatal(err)
		}
		forward := 0
		for _, n := range p.Nodes {
			if n.Op == program.OpCall {
				if !keep(n.Attr.Call) {
					t.Errorf("a call of %s is left", n.Attr.Call.Name)
				}
				if n.Attr.Call.Of == nil {
					forward++
				}
			}
		}
		if forward != calls {
			t.Errorf("with %q again there are %d calls of tanh, want %d:\n%s", again, forward, calls, p)
		}
		got, err := reference.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			for i, v := range w.Floats {
				if !(math.Abs(got[name].Floats[i]-v) <= 1e-15) {
					t.Errorf("with %q again, %s is %v, want %v", again, name, got[name], w)
					break
				}
			}
		}
	}
}

func built(t *testing.T, b *program.Builder) *program.Program {
	t.Helper()
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
