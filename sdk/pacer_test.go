package sdk_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// pacer is an optimizer with its own learning rate.
type pacer struct {
	optimizer
	rate func(b *program.Builder, in sdk.UpdateInput) program.Value
}

func (p pacer) Rate(b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return p.rate(b, in), nil
}

// TestInputsThatAreUsed checks that a program takes rate, steps and loss only if it uses them.
func TestInputsThatAreUsed(t *testing.T) {
	for used, u := range map[string]func(in sdk.UpdateInput) program.Value{
		"":       func(in sdk.UpdateInput) program.Value { return in.Gradient },
		" rate":  func(in sdk.UpdateInput) program.Value { return in.Gradient.Mul(in.Rate) },
		" steps": func(in sdk.UpdateInput) program.Value { return in.Gradient.Mul(in.Steps) },
		" loss":  func(in sdk.UpdateInput) program.Value { return in.Gradient.Mul(in.Loss) },
		" rate steps loss": func(in sdk.UpdateInput) program.Value {
			return in.Gradient.Mul(in.Loss.Add(in.Steps).Add(in.Rate))
		},
	} {
		o := optimizer{momentum.init, func(_ *program.Builder, in sdk.UpdateInput) (program.Value,
			sdk.State, error) {
			return u(in), in.State, nil
		}}
		out := overWire(t, o)
		if got, want := inputNames(out.Update), "x gradient step state.m state.v"+used; got != want {
			t.Errorf("inputs %s, want %s", got, want)
		}
		for _, name := range []string{spec.InputRate, spec.InputSteps, spec.InputLoss} {
			if out.HasInput(name) != strings.Contains(used, name) {
				t.Errorf("%q: reads %s: %v", used, name, out.HasInput(name))
			}
		}
	}
}

// overWire builds an optimizer's programs and returns them as a host receives them.
func overWire(t *testing.T, o sdk.Optimizer) spec.Optimizer {
	t.Helper()
	built := build(t, o)
	got, err := client.NewOptimizer(encode(t, optimizerAnswer(t, built))).
		Program(t.Context(), matrix, program.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(built, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("sent and received (-sent +received):\n%s", diff)
	}
	return got
}

// TestUnusedInputsLeaveNoTrace checks that a program has the same hash as the program written
// without its unused inputs.
func TestUnusedInputsLeaveNoTrace(t *testing.T) {
	out := build(t, momentum)
	b := program.NewBuilder("o/update/layers.0.wq")
	b.Input("x", program.FloatType(2, 8))
	g, step := b.Input("gradient", program.FloatType(2, 8)), b.Input("step", program.FloatType())
	m, v := b.Input("state.m", program.FloatType(2, 8)), b.Input("state.v", program.FloatType(2, 1))
	next := m.Scale(0.9).Add(g)
	b.Output("direction", next.Div(step))
	b.Output("state.m", next)
	b.Output("state.v", v)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.String(), out.Update.String()); diff != "" || p.Hash() != out.Update.Hash() {
		t.Errorf("(-by hand +built):\n%s", diff)
	}
}

func TestPacer(t *testing.T) {
	out := overWire(t, pacer{momentum, func(_ *program.Builder, in sdk.UpdateInput) program.Value {
		return in.Rate.Mul(in.X.MaxAll()).Add(in.State["v"].SumAll())
	}})
	if got, want := inputNames(out.Rate)+" → "+outputNames(
		out.Rate), "x gradient step state.m state.v rate → own_rate"; got != want {
		t.Errorf("the rate program is %s, want %s", got, want)
	}
	observed := rotated
	for name, c := range map[string]struct {
		o    sdk.Optimizer
		says string
	}{
		"a rate for each element": {
			pacer{momentum, func(_ *program.Builder, in sdk.UpdateInput) program.Value { return in.X }},
			"rate: output own_rate is float[2,8], want float"},
		"no rate": {
			pacer{momentum, func(*program.Builder, sdk.UpdateInput) program.Value {
				return program.Value{}
			}}, `output "own_rate": is absent`},
		"a rate from what is observed": {observedPacer{observed},
			"the rate program reads state.left, which is changed before the update"},
	} {
		_, err := sdk.BuildOptimizer(c.o, matrix)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// observedPacer has a rate that reads a state tensor that Observe changes.
type observedPacer struct{ refresher }

func (observedPacer) Rate(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, error) {
	return in.State["left"].SumAll(), nil
}
