package main

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// TestState: momentum is the only thing to remember, and only when there is some.
func TestState(t *testing.T) {
	for momentum, want := range map[float64]int{0: 0, 0.9: 1} {
		values := plugintest.Settings(t, sgd{}.Describe(), map[string]any{"momentum": momentum})
		p, err := sdk.BuildOptimizer(sgd{}, sdk.Tensor{Name: "w", Shape: []int{2, 3}, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.State) != want {
			t.Errorf("momentum %v: state %v, want %d tensors", momentum, p.State, want)
		}
	}
}

// TestPlainIsFree: without momentum the update is the gradient itself, no
// operation at all.
func TestPlainIsFree(t *testing.T) {
	values := plugintest.Settings(t, sgd{}.Describe(), nil)
	p, err := sdk.BuildOptimizer(sgd{}, sdk.Tensor{Name: "w", Shape: []int{2, 3}, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := p.Update.Output(sdk.OutputDirection); len(p.Update.Nodes) != 0 || id != program.ID(p.Update.Input(sdk.InputGradient)) {
		t.Errorf("the update is\n%s", p.Update)
	}
}

// TestIdleSettings: settings that would silently do nothing are refused.
func TestIdleSettings(t *testing.T) {
	for _, given := range []map[string]any{{"nesterov": true}, {"dampening": 0.5}} {
		values := plugintest.Settings(t, sgd{}.Describe(), given)
		_, err := sdk.BuildOptimizer(sgd{}, sdk.Tensor{Name: "w", Shape: []int{2}, Values: values})
		if err == nil || !strings.Contains(err.Error(), "set momentum above 0") {
			t.Errorf("%v: %v", given, err)
		}
	}
}
