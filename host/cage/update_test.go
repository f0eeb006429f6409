package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/google/go-cmp/cmp"
)

var testScalars = map[string]float64{
	InputStep: 1, InputRate: 0.1, InputNextRate: 0.05, InputClip: 0.5, InputLambda: 1.5,
}

// runRule executes one step of a rule on the oracle.
func runRule(t *testing.T, rule Rule, x, g []float64, scalars map[string]float64) map[string]reference.Tensor {
	t.Helper()
	p, err := rule.Program()
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]reference.Tensor{InputX: reference.Floats(x, rule.Shape...)}
	for _, s := range rule.Optimizer.State {
		tensors[sdk.StatePrefix+s.Name] = reference.Floats(make([]float64, size(s.Shape)), s.Shape...)
	}
	q := sdk.QuantizerProgram{}
	if rule.Quantizer != nil {
		q = *rule.Quantizer
	}
	return oracle(t, p, stepInputs(t, rule, tensors, q, oracle, g, scalars))
}

func testRule(t *testing.T, opt sdk.Optimizer, quantizer string, shape ...int) Rule {
	t.Helper()
	o, err := sdk.BuildOptimizer(opt, sdk.Tensor{Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	rule := Rule{Name: "x", Shape: shape, Optimizer: o, Form: Off, Variant: Paper}
	if quantizer != "" {
		q := testQuantizer(t, quantizer, shape)
		rule.Quantizer = &q
	}
	return rule
}

var (
	sampleX = []float64{0.3, -1.1, 0.74, 2.2, -0.4, 0.05}
	sampleG = []float64{0.2, -0.1, 0.5, -0.7, 0.9, 0.01}
)

// TestAlgorithmOrder is the paper's hand-checkable case: β = (0.9, 0.95),
// ω = 0.1, α = 0.1, grid 0.25, x = 0.3, g = 0.2, λ_t = 1. Decay comes first, the
// residual is that of the decayed point, the correction is outside of Adam.
func TestAlgorithmOrder(t *testing.T) {
	rule := testRule(t, adam{}, "fixed grid 0.25", 1)
	rule.Form, rule.Decay = Decoupled, 0.1
	out := runRule(t, rule, []float64{0.3}, []float64{0.2}, map[string]float64{
		InputStep: 1, InputRate: 0.1, InputNextRate: 0, InputClip: 1, InputLambda: 1,
	})
	if got := out[OutputX].Floats[0]; math.Abs(got-0.192300005) > 1e-9 {
		t.Errorf("x' = %.10f, want 0.192300005", got)
	}
}

// TestHomogeneousShortcut compares the residual derived from the forward pass with the
// one computed afresh at the decayed point.
func TestHomogeneousShortcut(t *testing.T) {
	rule := testRule(t, adam{}, "paper QuEST 4-bit per row, no rotation", 2, 3)
	rule.Form, rule.Decay, rule.Clip = Decoupled, 0.1, true
	short := runRule(t, rule, sampleX, sampleG, testScalars)
	afresh := *rule.Quantizer
	afresh.Homogeneous = false
	rule.Quantizer = &afresh
	if rule.NeedsQuantized() {
		t.Error("the residual at the decayed point does not need Q(x)")
	}
	long := runRule(t, rule, sampleX, sampleG, testScalars)
	for i, v := range short[OutputX].Floats {
		if math.Abs(v-long[OutputX].Floats[i]) > 1e-14 {
			t.Errorf("element %d: %v, computed afresh %v", i, v, long[OutputX].Floats[i])
		}
	}
}

func TestCoupledEqualsDecoupledForSGD(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
	rule.Form, rule.Clip = Coupled, true
	coupled := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Form = Decoupled
	decoupled := runRule(t, rule, sampleX, sampleG, testScalars)
	for i, v := range coupled[OutputX].Floats {
		if math.Abs(v-decoupled[OutputX].Floats[i]) > 1e-15 {
			t.Errorf("element %d: coupled %v, decoupled %v", i, v, decoupled[OutputX].Floats[i])
		}
	}
}

// TestCorrectionStaysOutOfTheState holds the definition of the decoupled form, and
// that clipping acts on the gradient alone.
func TestCorrectionStaysOutOfTheState(t *testing.T) {
	rule := testRule(t, adam{}, "fixed grid 0.25", 2, 3)
	rule.Clip = true
	off := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Form = Decoupled
	on := runRule(t, rule, sampleX, sampleG, testScalars)
	for _, s := range []string{"state.m", "state.v"} {
		if diff := cmp.Diff(off[s].Floats, on[s].Floats); diff != "" {
			t.Errorf("%s changes with the correction:\n%s", s, diff)
		}
	}
	for i, x := range sampleX {
		e := x - math.RoundToEven(x/0.25)*0.25
		want := off[OutputX].Floats[i] - testScalars[InputRate]*testScalars[InputLambda]*e
		if got := on[OutputX].Floats[i]; math.Abs(got-want) > 1e-15 {
			t.Errorf("element %d: %v, want %v", i, got, want)
		}
	}
}

// TestNonFiniteResidual: a tensor whose residual is not finite is trained as
// without the correction.
func TestNonFiniteResidual(t *testing.T) {
	for _, variant := range []Variant{Paper, Official} {
		for _, form := range []Form{Decoupled, Coupled} {
			rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
			rule.Form, rule.Variant = form, variant
			x := append([]float64(nil), sampleX...)
			x[2] = math.Inf(1) // e = Inf − Inf
			result := runRule(t, rule, x, sampleG, testScalars)
			out := result[OutputX].Floats
			if got := result[OutputUncorrected].Scalar(); got != 1 {
				t.Errorf("%s %s: uncorrected is %v, want 1", form, variant, got)
			}
			if got := runRule(t, rule, sampleX, sampleG, testScalars)[OutputUncorrected].Scalar(); got != 0 {
				t.Errorf("%s %s: uncorrected is %v for a finite residual, want 0", form, variant, got)
			}
			for i := range x {
				if want := x[i] - testScalars[InputRate]*sampleG[i]; out[i] != want {
					t.Errorf("%s %s: element %d: %v, want the uncorrected %v", form, variant, i, out[i], want)
				}
			}
		}
	}
}

func TestStatistics(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
	rule.Statistics = true
	out := runRule(t, rule, sampleX, sampleG, testScalars)
	var e2, x2 float64
	for _, x := range sampleX {
		e := x - math.RoundToEven(x/0.25)*0.25
		e2, x2 = e2+e*e, x2+x*x
	}
	if got := out[OutputErrorNorm2].Scalar(); math.Abs(got-e2) > 1e-14 {
		t.Errorf("Σe² = %v, want %v", got, e2)
	}
	if got := out[OutputValueNorm2].Scalar(); math.Abs(got-x2) > 1e-14 {
		t.Errorf("Σx² = %v, want %v", got, x2)
	}
}

func TestUnquantizedTensorIsNeverCorrected(t *testing.T) {
	rule := testRule(t, sgd{}, "", 2, 3)
	plain := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Form = Decoupled
	if diff := cmp.Diff(plain[OutputX].Floats, runRule(t, rule, sampleX, sampleG, testScalars)[OutputX].Floats); diff != "" {
		t.Error(diff)
	}
}
