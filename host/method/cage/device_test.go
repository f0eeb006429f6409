package cage

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// device runs a program as training does: lowered, compiled for the CPU, in float32.
func device(t *testing.T, p *program.Program, in map[string]reference.Tensor) map[string]reference.Tensor {
	t.Helper()
	return plugintest.CPU(t).Run(t, p, in)
}

// single is the tolerance of the golden values in float32. The cases have six steps and
// elements of up to 1.2; inputs are rounded to float32, and each step adds a few
// roundings of 2⁻²⁴ of x. 1e-6 absolute and relative covers that. It is far below the
// effect of a single element that is rounded to another point of the grid: a step of the
// grid, about 0.25, times α·λ_t, at least 0.01.
var single = golden.Tolerance{Abs: 1e-6, Rel: 1e-6}

// TestStepsGoldenOnTheDevice is TestStepsGolden on the device.
func TestStepsGoldenOnTheDevice(t *testing.T) {
	ran := 0
	f := golden.Load(t, "testdata/cage.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		if strings.HasPrefix(c.Params.String("optimizer"), "muon") {
			t.Skip("the optimizer muon is not part of these tests")
		}
		ran++
		runGoldenSteps(t, c, device, func(o golden.Object, key string, got []float64) {
			if key == "lam" { // the host's, in float64
				o.Close(key, got)
				return
			}
			o.CloseWithin(single, key, got)
		})
	})
	if ran < 9 {
		t.Errorf("only %d cases ran, the file has 9 for AdamW and SGD", ran)
	}
}

// TestParetoMetricOnTheDevice is TestParetoMetricGolden on the device.
func TestParetoMetricOnTheDevice(t *testing.T) {
	paretoMetric(t, device, func(point golden.Object, key string, got []float64) bool { return point.CloseWithin(single, key, got) })
}

// TestSumsOverLargeTensors: a sum of a million squares is good to 1e-5 in float32.
// (As one running sum it is off by 7e-5, and by percents in the largest layers.)
func TestSumsOverLargeTensors(t *testing.T) {
	effort.Long(t, "the tensors are large")
	const rows, columns = 1024, 1024
	p, err := ParetoNorm2(Rule{Name: "x", Shape: []int{rows, columns}})
	if err != nil {
		t.Fatal(err)
	}
	full := func(v float64) reference.Tensor {
		return reference.Floats(slices.Repeat([]float64{v}, rows*columns), rows, columns)
	}
	out := device(t, p, map[string]reference.Tensor{
		InputGradient: full(0.1), InputX: full(0), InputQuantized: full(0), InputLambda: reference.Float(1),
	})
	want := rows * columns * float64(float32(0.1)) * float64(float32(0.1))
	if got := out[OutputNorm2].Scalar(); math.Abs(got-want) > 1e-5*want {
		t.Errorf("the sum is %v, want %v: relative difference %.2g", got, want, math.Abs(got-want)/want)
	}
}
