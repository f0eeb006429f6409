package cage

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// correcting returns the method and the mode of a rule with the correction.
func correcting(form Form, variant Variant) (Method, Mode) {
	return CAGE{Form: form, Variant: variant}, Mode(form)
}

// literal is the correction as in the algorithm, which quantizes again, at the decayed point.
type literal struct{ CAGE }

func (literal) Reads(Rule) Reads { return Reads{Requantized: true} }

func (literal) residual(s *writer, x, _ program.Value) (e, αλ program.Value) {
	αλ = s.α.Mul(s.λ)
	return s.ifFinite(x.Sub(s.quantize(x))), αλ
}

var testScalars = map[string]float64{
	spec.InputStep: 1, spec.InputRate: 0.1, InputNextRate: 0.05, InputClip: 0.5, InputLambda: 1.5,
}

// runRule executes one step of a rule with the reference implementation.
func runRule(
	t *testing.T, rule Rule, x, g []float64, scalars map[string]float64,
) map[string]reference.Tensor {
	t.Helper()
	p, err := rule.Program()
	if err != nil {
		t.Fatal(err)
	}
	return runProgram(t, p, rule, x, g, scalars)
}

// runProgram executes a program with the inputs of a rule.
func runProgram(
	t *testing.T, p *program.Program, rule Rule, x, g []float64, scalars map[string]float64,
) map[string]reference.Tensor {
	t.Helper()
	tensors := map[string]reference.Tensor{spec.InputX: reference.Floats(x, rule.Shape...)}
	for _, s := range rule.Optimizer.State {
		tensors[spec.StatePrefix+s.Name] = reference.Floats(make([]float64, size(s.Shape)), s.Shape...)
	}
	q := spec.Quantizer{}
	if rule.Quantizer != nil {
		q = *rule.Quantizer
	}
	return runReference(t, p, stepInputs(t, rule, tensors, q, runReference, g, scalars))
}

func testRule(t *testing.T, opt sdk.Optimizer, quantizer string, shape ...int) Rule {
	t.Helper()
	o, err := sdk.BuildOptimizer(opt, sdk.Tensor{Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	rule := Rule{Name: "x", Shape: shape, Optimizer: o, RateFactor: 1}
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

// TestAlgorithmOrder checks a case of the paper that can be computed by hand: β = (0.9, 0.95),
// ω = 0.1, α = 0.1, grid 0.25, x = 0.3, g = 0.2, λ_t = 1. Decay comes first, the residual is that
// of the decayed point, and the correction is outside of Adam.
func TestAlgorithmOrder(t *testing.T) {
	rule := testRule(t, adam{}, "fixed grid 0.25", 1)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	rule.Decay = 0.1
	out := runRule(t, rule, []float64{0.3}, []float64{0.2}, map[string]float64{
		spec.InputStep: 1, spec.InputRate: 0.1, InputNextRate: 0, InputClip: 1, InputLambda: 1,
	})
	if got := out[spec.InputX].Floats[0]; !(math.Abs(got-0.192300005) <= 1e-9) {
		t.Errorf("x' = %.10f, want 0.192300005", got)
	}
}

// TestLiterally compares the correction by the error of the forward pass with that of the
// algorithm, which quantizes the decayed point.
func TestLiterally(t *testing.T) {
	const quest = "paper QuEST 4-bit per row, no rotation"
	x, g := append(slices.Clone(sampleX), 1.3, -0.9), append(slices.Clone(sampleG), -0.3, 0.6)
	for name, c := range map[string]struct {
		quantizer string
		change    func(*Rule)
	}{
		"decay, homogeneous":           {quest, func(r *Rule) { r.Decay = 0.1 }},
		"decay, homogeneous, rotation": {quest, func(r *Rule) { r.Decay, r.Rotation = 0.1, 4 }},
		"decay and rate of its own":    {quest, func(r *Rule) { r.Decay, r.RateFactor = 0.1, 0.5 }},
		"no decay":                     {"fixed grid 0.25", func(*Rule) {}},
		"no decay, rotation":           {"fixed grid 0.25", func(r *Rule) { r.Rotation = 2 }},
		"decay last": {"fixed grid 0.25",
			func(r *Rule) { r.Decay, r.DecayLast = 0.1, true }},
	} {
		rule := testRule(t, adam{}, c.quantizer, 2, 4)
		rule.Method, rule.Mode = correcting(Decoupled, Paper)
		rule.Clip = true
		c.change(&rule)
		if !rule.NeedsQuantized() {
			t.Errorf("%s: the error is not that of the forward pass", name)
		}
		short := runRule(t, rule, x, g, testScalars)[spec.InputX].Floats
		rule.Method = literal{rule.Method.(CAGE)}
		long := runRule(t, rule, x, g, testScalars)[spec.InputX].Floats
		for i, want := range long {
			if !(math.Abs(short[i]-want) <= 1e-14) {
				t.Errorf("%s: element %d: %v, literally %v", name, i, short[i], want)
			}
		}
	}
}

// TestAnyQuantizer checks that a quantizer that is not declared homogeneous, Q(c·x) = c·Q(x), is
// applied to the decayed point, as in the algorithm, without the input Q(x_t).
func TestAnyQuantizer(t *testing.T) {
	rule := testRule(t, adam{}, "fixed grid 0.25", 2, 3)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	rule.Decay = 0.1
	long := rule
	long.Method = literal{rule.Method.(CAGE)}
	want, err := long.Program()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := rule.Program(); err != nil || p.Hash() != want.Hash() {
		t.Errorf("the program is not that of the algorithm: %v", err)
	}
	if rule.NeedsQuantized() {
		t.Error("the residual at the decayed point does not need Q(x)")
	}
}

func TestCoupledEqualsDecoupledForSGD(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
	rule.Method, rule.Mode = correcting(Coupled, Paper)
	rule.Clip = true
	coupled := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	decoupled := runRule(t, rule, sampleX, sampleG, testScalars)
	for i, v := range coupled[spec.InputX].Floats {
		if !(math.Abs(v-decoupled[spec.InputX].Floats[i]) <= 1e-15) {
			t.Errorf("element %d: coupled %v, decoupled %v", i, v, decoupled[spec.InputX].Floats[i])
		}
	}
}

// TestCorrectionStaysOutOfTheState checks that the decoupled correction changes no state of the
// optimizer, and that only the gradient is clipped.
func TestCorrectionStaysOutOfTheState(t *testing.T) {
	rule := testRule(t, adam{}, "fixed grid 0.25", 2, 3)
	rule.Clip = true
	off := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	on := runRule(t, rule, sampleX, sampleG, testScalars)
	for _, s := range []string{"state.m", "state.v"} {
		if diff := cmp.Diff(off[s].Floats, on[s].Floats); diff != "" {
			t.Errorf("%s changes with the correction:\n%s", s, diff)
		}
	}
	for i, x := range sampleX {
		e := x - math.RoundToEven(x/0.25)*0.25
		want := off[spec.InputX].Floats[i] - testScalars[spec.InputRate]*testScalars[InputLambda]*e
		if got := on[spec.InputX].Floats[i]; !(math.Abs(got-want) <= 1e-15) {
			t.Errorf("element %d: %v, want %v", i, got, want)
		}
	}
}

// TestNonFiniteResidual checks that a tensor whose residual is not finite is trained without the
// correction.
func TestNonFiniteResidual(t *testing.T) {
	for _, variant := range []Variant{Paper, Official} {
		for _, form := range []Form{Decoupled, Coupled} {
			rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
			rule.Method, rule.Mode = correcting(form, variant)
			x := append([]float64(nil), sampleX...)
			x[2] = math.Inf(1) // e = Inf − Inf
			result := runRule(t, rule, x, sampleG, testScalars)
			out := result[spec.InputX].Floats
			if got := result[OutputUncorrected].Scalar(); got != 1 {
				t.Errorf("%s %s: uncorrected is %v, want 1", form, variant, got)
			}
			if got := runRule(t, rule, sampleX, sampleG, testScalars)[OutputUncorrected].Scalar(); got != 0 {
				t.Errorf("%s %s: uncorrected is %v for a finite residual, want 0", form, variant, got)
			}
			for i := range x {
				if want := x[i] - testScalars[spec.InputRate]*sampleG[i]; out[i] != want {
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
	if got := out[OutputErrorNorm2].Scalar(); !(math.Abs(got-e2) <= 1e-14) {
		t.Errorf("Σe² = %v, want %v", got, e2)
	}
	if got := out[OutputValueNorm2].Scalar(); !(math.Abs(got-x2) <= 1e-14) {
		t.Errorf("Σx² = %v, want %v", got, x2)
	}
}

func TestUnquantizedTensorIsNeverCorrected(t *testing.T) {
	rule := testRule(t, sgd{}, "", 2, 3)
	plain := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	if diff := cmp.Diff(plain[spec.InputX].Floats,
		runRule(t, rule, sampleX, sampleG, testScalars)[spec.InputX].Floats); diff != "" {
		t.Error(diff)
	}
}

func TestLambdaEdges(t *testing.T) {
	m := CAGE{Form: Decoupled, Variant: Paper, Lambda: 2, Silence: 0.9, Ramp: Linear}
	tests := []struct {
		name     string
		m        CAGE
		t, total int
		want     float64
	}{
		{"still silent at exactly s·T", m, 9, 10, 0},
		{"first step after the silence", m, 91, 100, 2 * (0.91 - 0.9) / (1 - 0.9)},
		{"λ exactly at the last step", m, 100, 100, 2},
		{"clamped past the end", m, 150, 100, 2},
		{"no silence still ramps", CAGE{Form: Coupled, Lambda: 4, Ramp: Linear}, 1, 4, 1},
		{"constant", CAGE{Form: Decoupled, Lambda: 3, Silence: 0.5, Ramp: Constant}, 51, 100, 3},
		{"off", CAGE{Form: Off, Lambda: 3, Ramp: Linear}, 100, 100, 0},
		{"no steps", m, 1, 0, 0},
	}
	for _, tt := range tests {
		if got := tt.m.Coefficient(tt.t, tt.total); !(math.Abs(got-tt.want) <= 1e-15) {
			t.Errorf("%s: λ_%d of %d = %v, want %v", tt.name, tt.t, tt.total, got, tt.want)
		}
	}
}

func TestLambdaIsMonotoneAndBounded(t *testing.T) {
	for _, silence := range []float64{0, 0.1, 0.5, 0.9, 0.999} {
		m := CAGE{Form: Decoupled, Lambda: 5, Silence: silence, Ramp: Linear}
		last := 0.0
		for step := 1; step <= 1000; step++ {
			l := m.Coefficient(step, 1000)
			if l < last || l > 5 {
				t.Fatalf("s=%v: λ_%d = %v after %v", silence, step, l, last)
			}
			last = l
		}
		if last != 5 {
			t.Errorf("s=%v: λ_T = %v, want 5 exactly", silence, last)
		}
	}
}
