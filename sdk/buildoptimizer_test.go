package sdk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// momentum is a complete optimizer with two state tensors.
var momentum = optimizer{
	init: func(b *program.Builder, x program.Value) (sdk.State, error) {
		return sdk.State{"v": b.Zeros(2, 1), "m": b.Zeros(2, 8)}, nil
	},
	update: func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
		m := in.State["m"].Scale(0.9).Add(in.Gradient)
		return m.Div(in.Step), sdk.State{"m": m, "v": in.State["v"]}, nil
	},
}

func TestBuildOptimizer(t *testing.T) {
	out, err := sdk.BuildOptimizer(momentum, matrix)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Tensor{{Name: "m", Shape: []int{2, 8}}, {Name: "v", Shape: []int{2, 1}}}
	if diff := cmp.Diff(want, out.State); diff != "" {
		t.Error(diff)
	}
	var inputs []string
	for _, in := range out.Update.Inputs {
		inputs = append(inputs, in.Name)
	}
	if diff := cmp.Diff([]string{"x", "gradient", "step", "state.m", "state.v"}, inputs); diff != "" {
		t.Error(diff)
	}
}

func TestStatelessOptimizer(t *testing.T) {
	plain := optimizer{
		init: func(*program.Builder, program.Value) (sdk.State, error) { return nil, nil },
		update: func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
			return in.Gradient, nil, nil
		},
	}
	out, err := sdk.BuildOptimizer(plain, matrix)
	if err != nil {
		t.Fatal(err)
	}
	if out.Init != nil || len(out.State) != 0 {
		t.Errorf("got %+v", out)
	}
}

func TestBuildOptimizerRefuses(t *testing.T) {
	initially := func(f func(b *program.Builder, x program.Value) (sdk.State, error)) optimizer {
		return optimizer{f, momentum.update}
	}
	updating := func(f func(b *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State,
		error)) optimizer {
		return optimizer{momentum.init, f}
	}
	cases := []struct {
		name string
		o    optimizer
		says string
	}{
		{"an error in Init",
			initially(func(*program.Builder, program.Value) (sdk.State, error) {
				return nil, errors.New("no")
			}), "no"},
		{"a panic in Init", initially(func(*program.Builder, program.Value) (sdk.State, error) {
			panic("oh")
		}), "panic: oh (buildoptimizer_test.go:"},
		{"an absent state", initially(func(*program.Builder, program.Value) (sdk.State, error) {
			return sdk.State{"m": {}}, nil
		}), `output "state.m": is absent`},
		{"an integer state", initially(func(b *program.Builder, _ program.Value) (sdk.State, error) {
			return sdk.State{"m": b.Zeros(2, 8), "v": b.ConstInt(1)}, nil
		}), "init: output state.v is int, want float"},
		{"a bad name", initially(func(b *program.Builder, _ program.Value) (sdk.State, error) {
			return sdk.State{"m m": b.Zeros(2, 8)}, nil
		}), "the name contains"},
		{"an error in Update",
			updating(func(*program.Builder, sdk.UpdateInput) (program.Value, sdk.State, error) {
				return program.Value{}, nil, errors.New("never")
			}), "never"},
		{"no direction", updating(func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State,
			error) {
			return program.Value{}, in.State, nil
		}), `output "direction": is absent`},
		{"a direction of another shape",
			updating(func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
				return in.Step, in.State, nil
			}), "update: output direction is float, want float[2,8]"},
		{"a state that is lost",
			updating(func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
				return in.Gradient, sdk.State{"m": in.State["m"]}, nil
			}), "the update program must return direction, state.m, state.v"},
		{"a state that changes its name",
			updating(func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
				return in.Gradient, sdk.State{"m": in.State["m"], "w": in.State["v"]}, nil
			}), "must return direction, state.m, state.v"},
		{"a state that changes its shape",
			updating(func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
				return in.Gradient, sdk.State{"m": in.State["m"], "v": in.State["m"]}, nil
			}), "update: output state.v is float[2,8], want float[2,1]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := sdk.BuildOptimizer(c.o, matrix)
			checkSiteError(t, err, sdk.KindOptimizer, c.says)
		})
	}
}

func TestOptimizerCheck(t *testing.T) {
	good, err := sdk.BuildOptimizer(momentum, matrix)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(*spec.Optimizer)
		says   string
	}{
		{"no update", func(o *spec.Optimizer) { o.Update = nil }, "the update program is absent"},
		{"no init", func(o *spec.Optimizer) { o.Init = nil },
			"the init program is required exactly when there are state tensors"},
		{"no state", func(o *spec.Optimizer) { o.State = nil },
			"the init program is required exactly when"},
		{"state out of order",
			func(o *spec.Optimizer) {
				o.State = []spec.Tensor{o.State[1], o.State[0]}
			}, "not sorted by name"},
		{"state twice", func(o *spec.Optimizer) { o.State = []spec.Tensor{o.State[0], o.State[0]} },
			"is listed twice"},
		{"init for update", func(o *spec.Optimizer) { o.Update = o.Init },
			"the update program must take x: float[2,8], gradient: float[2,8], step: float, state.m: " +
				"float[2,8]"},
		{"another shape of the state", func(o *spec.Optimizer) {
			o.State = []spec.Tensor{o.State[0], {Name: "v", Shape: []int{2}}}
		}, "init: output state.v is float[2,1], want float[2]"},
	}
	for _, c := range cases {
		o := good
		c.change(&o)
		if err := o.Check(matrix.Shape); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
	if err := good.Check([]int{2, 9}); err == nil {
		t.Error("accepted for a tensor of another shape")
	}
}
