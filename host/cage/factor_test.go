package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestFactor checks that the method reads the error of a factor as an input, in both forms, and
// that an error that is not finite gives no correction.
func TestFactor(t *testing.T) {
	e := []float64{0.5, -0.25, 0.125, 0, 1, -1}
	run := func(form Form, e []float64) map[string]reference.Tensor {
		rule := testRule(t, sgd{}, "", 2, 3)
		rule.Factor = true
		rule.Method, rule.Mode = correcting(form, Paper)
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]reference.Tensor{spec.InputX: reference.Floats(sampleX, 2, 3)}
		in = stepInputs(t, rule, in, spec.Quantizer{}, runReference, sampleG, testScalars)
		in[InputError] = reference.Floats(e, 2, 3)
		return runReference(t, p, in)
	}
	off := runRule(t, testRule(t, sgd{}, "", 2, 3), sampleX, sampleG, testScalars)[spec.InputX].Floats
	for _, form := range []Form{Decoupled, Coupled} {
		for i, got := range run(form, e)[spec.InputX].Floats {
			want := off[i] - testScalars[spec.InputRate]*testScalars[InputLambda]*e[i]
			if !(math.Abs(got-want) <= 1e-15) {
				t.Errorf("%s: element %d is %v, want %v", form, i, got, want)
			}
		}
		bad := run(form, []float64{0, 1, math.NaN(), 0, 0, 0})
		for i, got := range bad[spec.InputX].Floats {
			if got != off[i] {
				t.Errorf("%s: element %d is %v with a NaN in e, want %v", form, i, got, off[i])
			}
		}
		if bad[OutputUncorrected].Floats[0] != 1 {
			t.Errorf("%s: the factor is not reported as uncorrected", form)
		}
	}
}

// TestFrozenStatistics checks that a frozen tensor has only the program of its statistics, which
// reads the weight with its adapter.
func TestFrozenStatistics(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
	rule.Frozen = true
	for _, part := range []Part{Initializing, Evaluating, Collecting, Updating} {
		if jobs, err := Jobs([]Rule{rule}, part); err != nil || len(jobs) > 0 {
			t.Errorf("%s: %d programs, error %v", part, len(jobs), err)
		}
	}
	rule.Statistics = true
	jobs, err := Jobs([]Rule{rule}, Updating)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d programs, error %v", len(jobs), err)
	}
	if in := jobs[0].Inputs[spec.InputX]; in != "merged/x" || len(jobs[0].Outputs) > 0 {
		t.Errorf("the statistics read %s and replace %v", in, jobs[0].Outputs)
	}
	out := runReference(t, jobs[0].Program, map[string]reference.Tensor{
		spec.InputX:    reference.Floats(sampleX, 2, 3),
		InputQuantized: reference.Floats(make([]float64, 6), 2, 3)})
	want := 0.0
	for _, x := range sampleX {
		want += x * x
	}
	if got := out[OutputErrorNorm2].Floats[0]; !(math.Abs(got-want) <= 1e-12) {
		t.Errorf("Σe² = %v, want %v", got, want)
	}
}
