package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// references are reference values, written by testdata/reference.py.
type references struct {
	Bits, Group int
	Shape       []int
	X           []float64
	Cases       []struct {
		Method          string
		Value, Gradient []float64
	}
	// Steps has the values of methods with state.
	Steps struct {
		Shape []int
		X     [][]float64
		Runs  []struct {
			Method string
			Values [][]float64
		}
	}
}

// notCompared lists methods whose values have no short formula.
var notCompared = map[string]string{"quip": "its signs are those of random bits"}

// TestReference compares values, and gradients of methods with a custom backward pass, with
// formulas in NumPy.
func TestReference(t *testing.T) {
	content, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r references
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	compared := map[string]bool{}
	for _, c := range r.Cases {
		compared[c.Method] = true
		t.Run(c.Method, func(t *testing.T) {
			value, gradient := quantized(t, c.Method, r)
			within(t, "value", value, c.Value)
			if c.Gradient != nil {
				within(t, "gradient", gradient, c.Gradient)
			}
		})
	}
	for _, c := range r.Steps.Runs {
		compared[c.Method] = true
		t.Run(c.Method, func(t *testing.T) { steps(t, c.Method, r, c.Values) })
	}
	for _, m := range methods {
		if reason := notCompared[m.name]; compared[m.name] == (reason != "") {
			t.Errorf("%s: compared %t, %q", m.name, compared[m.name], reason)
		}
	}
}

// quantized returns Q(x) with the initial trained parameters, and the gradient of ΣQ(x).
func quantized(t *testing.T, method string, r references) (value, gradient []float64) {
	t.Helper()
	q := programs(t, method, r, r.Shape)
	own := q.Backward
	q = q.ForEvaluation()
	q.Backward = own
	in := map[string]reference.Tensor{spec.InputX: reference.Floats(r.X, r.Shape...)}
	if q.Init != nil {
		start, err := reference.Run(q.Init, in)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range start {
			in[name] = v
		}
	}
	ones := make([]float64, len(r.X))
	for i := range ones {
		ones[i] = 1
	}
	p, err := q.Reverse()
	if err != nil {
		t.Fatal(err)
	}
	in[spec.InputDY] = reference.Floats(ones, r.Shape...)
	dx, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	delete(in, spec.InputDY)
	out, err := reference.Run(q.Program, in)
	if err != nil {
		t.Fatal(err)
	}
	return out[spec.OutputValue].Floats, dx[autodiff.Prefix+spec.InputX].Floats
}

// programs returns the programs of a method for a weight.
func programs(t *testing.T, method string, r references, shape []int) spec.Quantizer {
	t.Helper()
	values, err := quantizer{}.Describe().
		Resolve(map[string]any{"method": method, "bits": r.Bits, "group": r.Group})
	if err != nil {
		t.Fatal(err)
	}
	q, err := sdk.BuildQuantizer(quantizer{}, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape,
		Values: values})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// steps compares the values of a method with state, step by step.
func steps(t *testing.T, method string, r references, want [][]float64) {
	t.Helper()
	q, state := programs(t, method, r, r.Steps.Shape), map[string]reference.Tensor{}
	for i, data := range r.Steps.X {
		run := func(p *program.Program) map[string]reference.Tensor {
			in := maps.Clone(state)
			in[spec.InputX] = reference.Floats(data, r.Steps.Shape...)
			out, err := reference.Run(p, in)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if i == 0 {
			state = run(q.InitState)
		}
		within(t, fmt.Sprintf("step %d: value", i), run(q.Program)[spec.OutputValue].Floats, want[i])
		state = run(q.Next)
	}
}

func within(t *testing.T, what string, got, want []float64) {
	t.Helper()
	largest := 0.0
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= 1e-12*largest) {
			t.Fatalf("%s %d is %v, want %v", what, i, got[i], w)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			// with all other settings it takes a minute
			settings := map[string]any{"method": m.name, "bits": 4, "group": 64}
			if m.name != "qdrop" {
				sdktest.Quantizer(t, quantizer{}, sdktest.With(settings))
				return
			}
			// In training, qdrop leaves numbers unquantized. They share no scale with others, unlike what
			// the check for NaN expects.
			r := sdktest.CheckQuantizer(sdktest.NewQuantizer(quantizer{}), sdktest.With(settings))
			for _, c := range r.Checks {
				if c.Status == sdktest.Fail && c.Name != "non-finite" {
					t.Error(r)
				}
			}
		})
	}
}
