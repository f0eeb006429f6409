package plugintest

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Settings turns a case's own settings into complete, checked ones: what the
// description does not declare, or declares differently, ends the test.
func Settings(t testing.TB, d sdk.Description, given map[string]any) sdk.Values {
	t.Helper()
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	values, err := d.Resolve(given)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// Quantization is a quantizer's answer for one tensor. Codes, Scale and Mask are
// empty when the quantizer does not give them.
type Quantization struct {
	Value, Codes, Scale, Mask []float64
	// Homogeneous is what the quantizer promises.
	Homogeneous bool

	machine Machine
	program *program.Program
	x       golden.Tensor
}

// Quantize builds the quantizer's program for a tensor of the shape of x with the
// given settings and runs it.
func (m Machine) Quantize(t testing.TB, q sdk.Quantizer, given map[string]any, x golden.Tensor) Quantization {
	t.Helper()
	site := sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: x.Shape, Values: Settings(t, q.Describe(), given)}
	built, err := sdk.BuildQuantizer(q, site)
	if err != nil {
		t.Fatal(err)
	}
	out := m.Run(t, built.Program, map[string]reference.Tensor{sdk.InputX: reference.Floats(x.Data, x.Shape...)})
	values := func(name string) []float64 { return out[name].Float64s() }
	return Quantization{
		Value: values(sdk.OutputValue), Codes: values(sdk.OutputCodes), Scale: values(sdk.OutputScale), Mask: values(sdk.OutputMask),
		Homogeneous: built.Homogeneous, machine: m, program: built.Program, x: x,
	}
}

// Gradient returns the gradient with respect to x when that of the quantized
// value is dy: the reverse pass of the surrogate.
func (q Quantization) Gradient(t testing.TB, dy []float64) []float64 {
	t.Helper()
	return q.machine.gradient(t, q.program, sdk.InputX, sdk.OutputSurrogate,
		map[string]reference.Tensor{sdk.InputX: reference.Floats(q.x.Data, q.x.Shape...)},
		reference.Floats(dy, q.x.Shape...))
}
