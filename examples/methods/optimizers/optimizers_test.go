package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// references are reference values, written by testdata/reference.py.
type references struct {
	Settings map[string]any
	Cases    []struct {
		Method            string
		Shape             []int
		Rate              float64
		X                 []float64
		Gradients, Points [][]float64
	}
}

// TestReference checks that every method makes the steps of another implementation.
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
		t.Run(fmt.Sprint(c.Method, c.Shape), func(t *testing.T) {
			settings := map[string]any{"method": c.Method}
			for name, v := range r.Settings {
				settings[name] = v
			}
			values, err := optimizer{}.Describe().Resolve(settings)
			if err != nil {
				t.Fatal(err)
			}
			q, err := sdk.BuildOptimizer(optimizer{},
				sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: c.Shape, Values: values})
			if err != nil {
				t.Fatal(err)
			}
			tensor := func(data []float64, shape ...int) reference.Tensor {
				return reference.Floats(data, shape...)
			}
			in := map[string]reference.Tensor{spec.InputX: tensor(c.X, c.Shape...)}
			if q.Init != nil {
				start, err := reference.Run(q.Init, in)
				if err != nil {
					t.Fatal(err)
				}
				for name, v := range start {
					in[name] = v
				}
			}
			x := append([]float64(nil), c.X...)
			for i, g := range c.Gradients {
				in[spec.InputX], in[spec.InputGradient], in[spec.InputStep] = tensor(x, c.Shape...),
					tensor(g, c.Shape...), reference.Float(float64(i+1))
				if q.HasInput(spec.InputRate) {
					in[spec.InputRate] = reference.Float(c.Rate)
				}
				out, err := reference.Run(q.Update, in)
				if err != nil {
					t.Fatal(err)
				}
				for j, u := range out[spec.OutputDirection].Floats {
					x[j] -= c.Rate * u
					if want := c.Points[i][j]; !(math.Abs(x[j]-want) <= 1e-10*(1+math.Abs(want))) {
						t.Fatalf("step %d, element %d: %v, want %v", i+1, j, x[j], want)
					}
				}
				for name, v := range out {
					if name != spec.OutputDirection {
						in[name] = v
					}
				}
			}
		})
	}
	for _, m := range methods {
		if !compared[m.name] {
			t.Errorf("%s is not compared with anything", m.name)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			sdktest.Optimizer(t, optimizer{}, sdktest.With(map[string]any{"method": m.name}))
		})
	}
}
