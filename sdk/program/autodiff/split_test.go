package autodiff_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func split(
	t *testing.T, p *program.Program, outputs []string, output string, wrt ...string,
) *autodiff.Partition {
	t.Helper()
	s, err := autodiff.Split(p, outputs, output, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runSplit runs both halves and returns the outputs of both.
func runSplit(
	t *testing.T, s *autodiff.Partition, in tensors, cotangent string, dy reference.Tensor,
) (forward, backward tensors) {
	t.Helper()
	forward = run(t, s.Forward, in)
	args := tensors{cotangent: dy}
	for _, r := range s.Residuals {
		if r.Input {
			args[r.Name] = in[r.Name]
		} else {
			args[r.Name] = forward[r.Name]
		}
		if !args[r.Name].Type.Equal(r.Type) {
			t.Errorf("residual %s is %s, stated as %s", r.Name, args[r.Name].Type, r.Type)
		}
	}
	return forward, run(t, s.Backward, args)
}

// TestSplitEqualsVJP checks that the halves give the same bits as the whole. A quotient that is
// replaced where it is infinite has the gradient NaN there, in both.
func TestSplitEqualsVJP(t *testing.T) {
	for seed := range uint64(300) {
		c := randprog.New(seed, randprog.Options{Nodes: 30})
		in := tensors(c.Inputs)
		var outputs []string
		for _, o := range c.Program.Outputs[:(len(c.Program.Outputs)+1)/2] {
			outputs = append(outputs, o.Name)
		}
		want := run(t, c.Program, in)
		output := c.Program.Outputs[len(c.Program.Outputs)/3]
		dy := want[output.Name]
		if dy.Type.DType != program.Float {
			continue
		}
		wrt := []string{"x0", "x1"}
		grads := run(t, vjp(t, c.Program, output.Name, wrt...), with(in, "d."+output.Name, dy))
		s := split(t, c.Program, outputs, output.Name, wrt...)
		forward, backward := runSplit(t, s, in, "d."+output.Name, dy)
		for _, name := range outputs {
			if diff := cmp.Diff(want[name], forward[name]); diff != "" {
				t.Errorf("seed %d: output %s: -want +got:\n%s", seed, name, diff)
			}
		}
		if diff := cmp.Diff(grads, backward, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("seed %d: gradients: -whole +halves:\n%s", seed, diff)
		}
		checkResiduals(t, s)
	}
}

// checkResiduals checks the properties that Partition documents for its programs.
func checkResiduals(t *testing.T, s *autodiff.Partition) {
	t.Helper()
	for _, p := range []*program.Program{s.Forward, s.Backward} {
		for _, n := range p.Nodes {
			if n.Op == program.OpStopGradient {
				t.Errorf("%s holds a stop_gradient", p.Name)
			}
		}
	}
	for i, r := range s.Residuals {
		if s.Backward.Inputs[i].Name != r.Name {
			t.Errorf("input %d of the backward program is %s, residual %d is %s", i,
				s.Backward.Inputs[i].Name, i, r.Name)
		}
		if r.Input {
			continue
		}
		id, ok := s.Forward.Output(r.Name)
		if !ok {
			t.Errorf("the forward program has no output %s", r.Name)
		} else if n := s.Forward.Node(id); n != nil && n.Op == program.OpConstant {
			t.Errorf("residual %s is a constant", r.Name)
		}
	}
}

// quest returns a simplified fake quantization of QuEST (Panferov et al. 2025).
func quest(t *testing.T) *program.Program {
	t.Helper()
	b := program.NewBuilder("quest")
	x := b.Input("x", program.FloatType(4, 64))
	z := x.Hadamard(64)
	s := z.Square().MeanRow().Sqrt().Scale(2.37 / 7)
	r := z.Div(s)
	q := r.Round().Clip(-8, 7)
	mask := r.Sub(q).Abs().Le(b.Const(0.5))
	b.Output("value", q.Mul(s).Hadamard(64))
	b.Output("surrogate", mask.Select(z, b.Const(0)).Hadamard(64))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestQuestKeepsOnlyItsMask(t *testing.T) {
	s := split(t, quest(t), []string{"value"}, "surrogate", "x")
	const backward = `program quest.backward(%0 r.0: bool[4,64], %1 d.surrogate: float[4,64]) {
  %2 = constant 0 : float
  %3 = hadamard %1 block=64 : float[4,64]
  %4 = select %0 %3 %2 : float[4,64]
  %5 = hadamard %4 block=64 : float[4,64]
  return d.x=%5
}
`
	if diff := cmp.Diff(backward, s.Backward.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	rotations := 0
	for _, n := range s.Forward.Nodes {
		if n.Op == program.OpHadamard {
			rotations++
		}
	}
	if rotations != 2 {
		t.Errorf("the forward program rotates %d times, want 2: x, and back\n%s", rotations, s.Forward)
	}
}

func TestResiduals(t *testing.T) {
	type value = program.Value
	cases := []struct {
		name string
		f    func(x, y value) value // y has the shape of x, [4,8]
		want []string
	}{
		{"linear functions need nothing",
			func(x, y value) value { return x.Scale(2).Add(y).Neg().Hadamard(8) }, nil},
		{"a product needs its operands", func(x, y value) value { return x.Mul(y) }, []string{"x", "y"}},
		{"tanh needs its result, which is the output", func(x, y value) value { return x.Tanh() },
			[]string{"out"}},
		{"an intermediate result", func(x, y value) value { return x.Exp().Add(y).Abs().Neg() },
			[]string{"r.0 float[4,8]", "r.1 float[4,8]"}},
		{"not what is repeated", func(x, y value) value {
			return x.Mul(y.MaxRow().Broadcast([]int{4, 8}, []int{0, 1})).Neg().StopGradient().Mul(y)
		},
			[]string{"r.0 float[4,8]"}},
		{"a bool before a float",
			func(x, y value) value {
				return x.Gt(y).Convert(program.Float).Mul(x).Neg()
			}, []string{"r.0 bool[4,8]"}},
		{"a clip needs where it clipped", func(x, y value) value { return x.Scale(3).Clip(-1, 1).Neg() },
			[]string{"r.0 bool[4,8]"}},
		{"a maximum also needs the ties",
			func(x, y value) value {
				return x.Scale(3).Max(x.Builder().Const(1)).Neg()
			}, []string{"r.0 bool[4,8]", "r.1 bool[4,8]"}},
		{"rows of a column", func(x, y value) value { return x.Div(y.Abs().MaxRow()).Neg().Sub(y) },
			[]string{"x", "y", "r.0 float[4]", "r.1 bool[4,8]"}},
		{"no path", func(x, y value) value { return x.Mul(y).StopGradient() }, nil},
		{"constants are made again", func(x, y value) value {
			b := x.Builder()
			return x.Mul(b.Iota(program.FloatType(4, 8), 1).Sqrt())
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := built(t, c.f, []int{4, 8}, []int{4, 8})
			s := split(t, p, []string{"out"}, "out", "x", "y")
			var got []string
			for _, r := range s.Residuals {
				name := r.Name
				if _, original := p.Output(name); !original && !r.Input {
					name += " " + r.Type.String()
				}
				got = append(got, name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("residuals: -want +got:\n%s\n%s\n%s", diff, s.Forward, s.Backward)
			}
		})
	}
}

// TestResidualNamesAreFree checks a name that is both an input and an output, as for state tensors,
// and names like r.0 that are taken.
func TestResidualNamesAreFree(t *testing.T) {
	b := program.NewBuilder("names")
	m := b.Input("m", program.FloatType(2))
	taken := b.Input("r.0", program.FloatType(2))
	next := m.Mul(taken).Tanh()
	b.Output("m", next)
	b.Output("r.1", next.Exp().Add(m))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	s := split(t, p, []string{"m", "r.1"}, "r.1", "m", "r.0")
	in := tensors{"m": reference.Floats([]float64{1, 2}, 2),
		"r.0": reference.Floats([]float64{0.5, -0.25}, 2)}
	dy := reference.Floats([]float64{3, 4}, 2)
	_, got := runSplit(t, s, in, "d.r.1", dy)
	want := run(t, vjp(t, p, "r.1", "m", "r.0"), with(in, "d.r.1", dy))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	seen := map[string]bool{}
	for _, r := range s.Residuals {
		if seen[r.Name] {
			t.Errorf("two residuals are called %s", r.Name)
		}
		seen[r.Name] = true
	}
}

// TestSplitBy checks that the halves compute the same as a program and its given backward pass, and
// that values that both need are residuals or outputs.
func TestSplitBy(t *testing.T) {
	b := program.NewBuilder("rounded")
	x, s := b.Input("x", program.FloatType(4)), b.Input("s", program.FloatType())
	b.Output("value", x.Div(s).Round().Mul(s))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewBuilder("own")
	dy := b.Input("d.value", program.FloatType(4))
	s, x = b.Input("s", program.FloatType()), b.Input("x", program.FloatType(4))
	noise := b.Input("noise", program.FloatType())
	off := x.Div(s).Sub(x.Div(s).Round()).StopGradient()
	b.Output("d.x", dy.Abs().Mul(off).Add(noise))
	b.Output("d.s", dy.Mul(off).SumAll())
	backward, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := autodiff.SplitBy(p, []string{"value"}, backward, "d.value")
	if err != nil {
		t.Fatal(err)
	}
	in := tensors{"x": reference.Floats([]float64{0.3, -1.2, 2.6, 0}, 4), "s": reference.Float(0.5)}
	grad := reference.Floats([]float64{1, -2, 3, 0}, 4)
	all := with(in, "noise", reference.Float(7))
	forward := run(t, parts.Forward, in)
	args := tensors{"d.value": grad}
	for _, r := range parts.Residuals {
		if args[r.Name] = all[r.Name]; !r.Input {
			args[r.Name] = forward[r.Name]
		}
	}
	if diff := cmp.Diff(run(t, p, in), forward,
		cmpopts.IgnoreMapEntries(
			func(name string, _ reference.Tensor) bool { return name != "value" })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(run(t, backward, with(all, "d.value", grad)),
		run(t, parts.Backward, args)); diff != "" {
		t.Error(diff)
	}
	if len(parts.Residuals) != 2 || !parts.Residuals[1].Input || len(parts.Backward.Inputs) != 3 {
		t.Errorf("kept are %v, want one, and the noise", parts.Residuals)
	}
}
