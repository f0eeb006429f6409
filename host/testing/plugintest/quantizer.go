package plugintest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// BuildQuantizer returns the quantizer's programs for a weight of the given shape.
func BuildQuantizer(t testing.TB, q sdk.Quantizer, given map[string]any,
	shape ...int) spec.Quantizer {
	t.Helper()
	built, err := sdk.BuildQuantizer(q, weight(t, q, given, shape))
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func weight(t testing.TB, q sdk.Quantizer, given map[string]any, shape []int) sdk.Site {
	t.Helper()
	return sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape,
		Values: Settings(t, q.Describe(), given)}
}

// RefusesWeight fails the test unless the quantizer refuses a weight of the given shape with an
// error that contains reason.
func RefusesWeight(t testing.TB, q sdk.Quantizer, given map[string]any, reason string,
	shape ...int) {
	t.Helper()
	_, err := sdk.BuildQuantizer(q, weight(t, q, given, shape))
	Refused(t, fmt.Sprint(given), err, reason)
}

// Refused fails the test unless err is a refusal that contains reason.
func Refused(t testing.TB, what string, err error, reason string) {
	t.Helper()
	if _, ok := errors.AsType[*sdk.Refusal](err); !ok || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: got %v, want the refusal %q", what, err, reason)
	}
}

// Residuals returns the types of the values, besides x, that the forward pass saves for the
// backward pass, for a weight of the given shape.
func Residuals(t testing.TB, q sdk.Quantizer, given map[string]any,
	shape ...int) (kept []program.Type) {
	t.Helper()
	built := BuildQuantizer(t, q, given, shape...)
	parts, err := built.Split()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range parts.Residuals {
		if r.Input {
			t.Errorf("%v: the backward pass keeps the input %s", given, r.Name)
		}
		kept = append(kept, r.Type)
	}
	return kept
}

// Quantization is the result of quantizing one tensor. Codes, Scale and Mask are empty if
// the quantizer does not return them.
type Quantization struct {
	Value, Codes, Scale, Mask []float64

	bench Bench
	built spec.Quantizer
	x     golden.Array
}

// Quantize builds and runs the quantizer's program for a tensor with the shape of x.
func (m Bench) Quantize(t testing.TB, q sdk.Quantizer, given map[string]any,
	x golden.Array) Quantization {
	t.Helper()
	built := BuildQuantizer(t, q, given, x.Shape...)
	out := m.Run(t, built.Program,
		map[string]reference.Tensor{spec.InputX: reference.Floats(x.Data, x.Shape...)})
	values := func(name string) []float64 { return out[name].Float64s() }
	return Quantization{
		Value: values(spec.OutputValue), Codes: values(spec.OutputCodes),
		Scale: values(spec.OutputScale), Mask: values(spec.OutputMask),
		bench: m, built: built, x: x,
	}
}

// Gradient returns the gradient with respect to x, where dy is the gradient with respect to the
// quantized value.
func (q Quantization) Gradient(t testing.TB, dy []float64) []float64 {
	t.Helper()
	reverse, err := q.built.Reverse()
	if err != nil {
		t.Fatal(err)
	}
	return q.bench.Run(t, reverse, map[string]reference.Tensor{
		spec.InputX:  reference.Floats(q.x.Data, q.x.Shape...),
		spec.InputDY: reference.Floats(dy, q.x.Shape...),
	})[autodiff.Prefix+spec.InputX].Float64s()
}
