package autodiff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// polar returns a call with two results, radius and angle-like, of x and y.
func polar(t *testing.T) *program.Call {
	t.Helper()
	b := program.NewBuilder("polar")
	x, y := b.Input("x", program.FloatType(3)), b.Input("y", program.FloatType(3))
	b.Input("unused", program.Type{DType: program.Int})
	radius := x.Square().Add(y.Square()).Sqrt()
	b.Output("radius", radius)
	b.Output("sine", y.Div(radius))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &program.Call{Name: "polar", Setting: struct{ Size int }{3}, Meaning: p}
}

// withCalls returns a program that calls polar twice, where the second call reads results of the
// first. An output reads both results, or only one of them if one is set.
func withCalls(t *testing.T, one bool) *program.Program {
	t.Helper()
	c, b := polar(t), program.NewBuilder("calls")
	x, y, n := b.Input("x", program.FloatType(3)), b.Input("y", program.FloatType(3)),
		b.Input("n", program.Type{DType: program.Int})
	twice := y.Scale(2)
	first := b.Call(c, x, twice, n)
	second := b.Call(c, first[1].Exp(), first[0].Add(x), n)
	out := second[1].Mul(x).Add(b.Call(c, x, twice, n)[1]) // the first again
	if !one {
		out = out.Add(second[0].Mul(first[1]))
	}
	b.Output("out", out)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCallsAreTheirMeanings compares values, gradients and gradients of gradients of a program with
// calls, with those of the program that has their meanings in their places.
func TestCallsAreTheirMeanings(t *testing.T) {
	in := map[string]reference.Tensor{
		"x": reference.Floats([]float64{0.3, -1.2, 0.7}, 3),
		"y": reference.Floats([]float64{1, 2, -3}, 3),
		"n": reference.Ints([]int32{1}), "d.out": reference.Floats([]float64{1, -0.5, 2}, 3),
		"d.d.x": reference.Floats([]float64{0.1, 0.2, -1}, 3),
	}
	run := func(p *program.Program) map[string]reference.Tensor {
		t.Helper()
		own := map[string]reference.Tensor{}
		for _, input := range p.Inputs {
			own[input.Name] = in[input.Name]
		}
		out, err := reference.Run(p, own)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, one := range []bool{false, true} {
		p := withCalls(t, one)
		expanded, err := transform.Expand(p, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(expanded.String(), "polar") || !strings.Contains(p.String(),
			"= polar %0 %4 %2 {Size:3} output=sine : float[3]") {
			t.Errorf("got calls in\n%sor none in\n%s", expanded, p)
		}
		for _, derive := range []func(p *program.Program) (*program.Program, error){
			func(p *program.Program) (*program.Program, error) { return p, nil },
			transform.Simplify,
			func(p *program.Program) (*program.Program, error) { return autodiff.VJP(p, "out", "y", "x") },
			func(p *program.Program) (*program.Program, error) {
				first, err := autodiff.VJP(p, "out", "x", "y")
				if err != nil {
					return nil, err
				}
				return autodiff.VJP(first, "d.x", "y", "x", "d.out")
			},
		} {
			got, err := derive(p)
			if err != nil {
				t.Fatal(err)
			}
			want, err := derive(expanded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(run(want), run(got), cmpopts.EquateApprox(1e-13, 1e-15)); diff != "" {
				t.Errorf("%s", diff)
			}
		}
	}
}

// TestCallGradientIsACall checks that a call's gradient is one call, whatever results are used, and
// that the program of loss and gradients calls each forward pass once.
func TestCallGradientIsACall(t *testing.T) {
	p := withCalls(t, false)
	vjp, err := autodiff.VJP(p, "out", "x")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for i := range vjp.Nodes {
		for j := range vjp.Nodes[:i] {
			if vjp.Nodes[i].SameCall(&vjp.Nodes[j]) {
				calls[vjp.Nodes[i].Attr.Call.Name]--
				break
			}
		}
		if c := vjp.Nodes[i].Attr.Call; c != nil {
			calls[c.Name]++
			if of := c.Of; (of == nil) == strings.HasSuffix(c.Name, ".vjp") {
				t.Errorf("%s is of %v", c.Name, of)
			}
		}
	}
	if want := map[string]int{"polar": 2, "polar.vjp": 2}; !cmp.Equal(calls, want) {
		t.Errorf("got the calls %v, want %v, in\n%s", calls, want, vjp)
	}
}

// TestOwnAdjoint checks that a call's own adjoint takes the place of the gradient of its meaning:
// here the gradient of round(s·x) is that of s·x, clipped by a result of the call.
func TestOwnAdjoint(t *testing.T) {
	f := program.FloatType(3)
	b := program.NewBuilder("clip")
	x, s := b.Input("x", f), b.Input("s", f)
	b.Output("y", x.Mul(s).Round())
	b.Output("near", x.Mul(s).Abs().Lt(b.Const(2)))
	meaning := done(t, b)
	b = program.NewBuilder("clip.adjoint")
	near := b.Input("near", program.Type{DType: program.Bool, Shape: []int{3}})
	x, s, dy := b.Input("x", f), b.Input("s", f), b.Input("d.y", f)
	b.Output("d.s", dy.Mul(x))
	b.Output("d.x", near.Select(dy.Mul(s), b.Const(0)))
	adjoint := done(t, b)

	b = program.NewBuilder("model")
	x, s = b.Input("x", f), b.Input("s", f)
	c := &program.Call{Name: "clip", Meaning: meaning, Adjoint: adjoint}
	b.Output("y", b.Call(c, x.Scale(2), s)[0])
	p := done(t, b)
	vjp, err := autodiff.VJP(p, "y", "x", "s")
	if err != nil {
		t.Fatal(err)
	}
	out, err := reference.Run(vjp, map[string]reference.Tensor{
		"x": reference.Floats([]float64{1, 3, -2}, 3), "s": reference.Floats([]float64{0.5, 4, -0.25}, 3),
		"d.y": reference.Floats([]float64{1, 10, 100}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float64{"d.x": {1, 0, -50}, "d.s": {2, 60, -400}} {
		if got := out[name].Floats; !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}

	// adjointOf returns an adjoint of a call with the results y and z.
	adjointOf := func(output string, f func(dy program.Value) program.Value,
		inputs ...string) *program.Program {
		b, dy := program.NewBuilder("adjoint"), program.Value{}
		for _, name := range inputs {
			dy = b.Input(name, program.FloatType(3))
		}
		b.Output(output, f(dy))
		return done(t, b)
	}
	same := func(dy program.Value) program.Value { return dy }
	b = program.NewBuilder("two")
	x = b.Input("x", f)
	b.Output("y", x.Exp())
	b.Output("z", x.Tanh())
	two := done(t, b)
	for want, c := range map[string]struct {
		result  int
		adjoint *program.Program
	}{
		"needs that of y": {1, adjointOf("d.x", same, "d.y")},
		`returns "d.y"`:   {0, adjointOf("d.y", same, "d.y")},
		`returns "d.x"`: {0, adjointOf("d.x",
			func(dy program.Value) program.Value { return dy.ReduceSum(0) }, "d.y")},
		`reads "w"`: {0, adjointOf("d.x", same, "w", "d.y")},
	} {
		b := program.NewBuilder("model")
		b.Output("y", b.Call(&program.Call{Name: "two", Meaning: two, Adjoint: c.adjoint},
			b.Input("x", f))[c.result])
		_, err := autodiff.VJP(done(t, b), "y", "x")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that has %s", err, want)
		}
	}
}

func done(t *testing.T, b *program.Builder) *program.Program {
	t.Helper()
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
