package main

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, sgd{}, plugintest.Kit(t, "sgd", sdktest.With(map[string]any{"l2": 0.0}))...)
	sdktest.Optimizer(t, sgd{}, plugintest.Fixed(t, sgd{}, map[string]any{"momentum": 0.9})...)
}

// TestState checks that the only state is the momentum, if there is any.
func TestState(t *testing.T) {
	for momentum, want := range map[float64]int{0: 0, 0.9: 1} {
		if p := plugintest.BuildOptimizer(t, sgd{}, map[string]any{"momentum": momentum},
			plugintest.Matrix(2, 3)); len(p.State) != want {
			t.Errorf("momentum %v: state %v, want %d tensors", momentum, p.State, want)
		}
	}
}

// TestPlainIsFree checks that without momentum the update is the gradient itself, without any
// operation.
func TestPlainIsFree(t *testing.T) {
	p := plugintest.BuildOptimizer(t, sgd{}, nil, plugintest.Matrix(2, 3))
	if id, _ := p.Update.Output(spec.OutputDirection); len(p.Update.Nodes) != 0 ||
		id != program.ID(p.Update.Input(spec.InputGradient)) {
		t.Errorf("the update is\n%s", p.Update)
	}
}

// TestIdleSettings checks that settings without an effect are refused.
func TestIdleSettings(t *testing.T) {
	for _, given := range []map[string]any{{"nesterov": true}, {"dampening": 0.5}} {
		values := plugintest.Settings(t, sgd{}.Describe(), given)
		_, err := sdk.BuildOptimizer(sgd{}, sdk.Tensor{Name: "w", Shape: []int{2}, Values: values})
		plugintest.Refused(t, fmt.Sprint(given), err, "set momentum above 0")
	}
}
