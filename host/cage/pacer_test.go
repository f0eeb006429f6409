package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// pacer steps along the gradient, with a rate of its own: α·max|x|·loss·t/T.
type pacer struct{ sgd }

func (pacer) Rate(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return in.Rate.Mul(in.X.Abs().MaxAll()).Mul(in.Loss).Mul(in.Step.Div(in.Steps)), nil
}

// TestPacer checks that an optimizer's own rate, computed at the weight before decay, replaces the
// schedule's in each form and variant.
func TestPacer(t *testing.T) {
	grid := func(x float64) float64 { return 0.25 * math.RoundToEven(x/0.25) }
	scalars := map[string]float64{spec.InputStep: 3, spec.InputSteps: 12, spec.InputLoss: 2,
		spec.InputRate: 0.2, InputNextRate: 0.1, InputClip: 1, InputLambda: 1.5}
	const factor, decay, λ = 0.5, 0.3, 1.5
	α := 0.2 * factor * 2.2 * 2 * 3 / 12
	for name, c := range map[string]struct {
		form    Form
		variant Variant
		last    bool
		want    func(x, g float64) float64
	}{
		"decoupled": {Decoupled, Paper, false, func(x, g float64) float64 {
			x *= 1 - α*decay
			return x - α*g - α*λ*(x-grid(x))
		}},
		"official": {Decoupled, Official, false, func(x, g float64) float64 {
			y := x*(1-α*decay) - α*g
			return y - α*λ*(y-grid(y))
		}},
		"coupled": {Coupled, Paper, false,
			func(x, g float64) float64 { return x*(1-α*decay) - α*(g+λ*(x-grid(x))) }},
		"decay last": {Decoupled, Paper, true,
			func(x, g float64) float64 { return (x-α*g)*(1-α*decay) - α*λ*(x-grid(x)) }},
		"off": {Off, Paper, false, func(x, g float64) float64 { return x*(1-α*decay) - α*g }},
	} {
		rule := testRule(t, pacer{}, "fixed grid 0.25", 2, 3)
		rule.Method, rule.Mode = correcting(c.form, c.variant)
		rule.Decay, rule.DecayLast, rule.RateFactor = decay, c.last, factor
		out := runRule(t, rule, sampleX, sampleG, scalars)
		for i, got := range out[spec.InputX].Floats {
			if want := c.want(sampleX[i], sampleG[i]); !(math.Abs(got-want) <= 1e-14) {
				t.Errorf("%s: element %d is %v, want %v", name, i, got, want)
			}
		}
		if got := out[spec.OutputRate].Floats[0]; !(math.Abs(got-α) <= 1e-15) {
			t.Errorf("%s: the rate is %v, want %v", name, got, α)
		}
	}
}

// TestScalarsThatAreRead checks that steps and loss are inputs of a rule if its optimizer reads
// them.
func TestScalarsThatAreRead(t *testing.T) {
	for o, want := range map[sdk.Optimizer]int{sgd{}: 0, pacer{}: 2} {
		n := 0
		for _, in := range testRule(t, o, "", 2, 3).Inputs() {
			if in.Name == spec.InputSteps || in.Name == spec.InputLoss {
				n++
			}
		}
		if n != want {
			t.Errorf("%T: %d of steps and loss, want %d", o, n, want)
		}
	}
}

// collector steps along g/‖g‖, with the norm over several tensors.
type collector struct{ sgd }

func (collector) Collect(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"norm2": in.Gradient.Square().SumAll()}, nil
}

func (collector) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient.Div(in.Global["norm2"].Sqrt()), nil, nil
}

// TestCollect checks that values are collected from the gradient that the optimizer reads, and that
// the update reads their sum over its group.
func TestCollect(t *testing.T) {
	rule := testRule(t, collector{}, "fixed grid 0.25", 2, 3)
	rule.Method, rule.Mode = correcting(Coupled, Paper)
	rule.Clip, rule.Group = true, "2"
	p, err := rule.before(Collecting)
	if err != nil {
		t.Fatal(err)
	}
	const name = "global.2.norm2"
	tensors := map[string]reference.Tensor{spec.InputX: reference.Floats(sampleX, rule.Shape...)}
	in := stepInputs(t, rule, tensors, *rule.Quantizer, runReference, sampleG, testScalars)
	delete(in, name) // it is not known yet
	got := runReference(t, p, in)[name].Floats[0]
	want := 0.0
	for i, x := range sampleX {
		g := 0.5*sampleG[i] + 1.5*(x-0.25*math.RoundToEven(x/0.25))
		want += g * g
	}
	if !(math.Abs(got-want) <= 1e-14) {
		t.Errorf("collected %v, want %v", got, want)
	}
	scalars := map[string]float64{name: 4}
	for s, v := range testScalars {
		scalars[s] = v
	}
	rule.Mode, rule.Clip = Idle, false
	out := runRule(t, rule, sampleX, sampleG, scalars)
	for i, got := range out[spec.InputX].Floats {
		if want := sampleX[i] - 0.1*sampleG[i]/2; !(math.Abs(got-want) <= 1e-15) {
			t.Errorf("element %d is %v, want %v", i, got, want)
		}
	}
}

// prober steps along 2·s − g, where s is the second gradient, plus 100 if a probe is due.
type prober struct{ sgd }

func (prober) ProbeAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1} }

func (prober) Probe(b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return in.Gradient.Mul(in.Rate), nil
}

func (prober) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Probed.Scale(2).Sub(in.Gradient).Add(in.Probing.Scale(100)), nil, nil
}

// TestProbe checks that the point is computed from the gradient that the optimizer reads. The
// second gradient is clipped by the same factor, and the method adds the same term to it.
func TestProbe(t *testing.T) {
	rule := testRule(t, prober{}, "fixed grid 0.25", 2, 3)
	rule.Method, rule.Mode = correcting(Coupled, Paper)
	rule.Clip, rule.Decay = true, 0.5
	if list, err := rule.others(Probing); list != nil || err != nil {
		t.Errorf("there is a probe where none is due: %v", err)
	}
	before := runRule(t, rule, sampleX, sampleG, testScalars)
	rule.Probing = true
	p, err := rule.before(Probing)
	if err != nil {
		t.Fatal(err)
	}
	first := rule
	first.Probing = false
	point := runProgram(t, p, first, sampleX, sampleG, testScalars)[OutputPoint].Floats
	p, err = rule.Program()
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]reference.Tensor{spec.InputX: reference.Floats(sampleX, rule.Shape...)}
	in := stepInputs(t, rule, tensors, *rule.Quantizer, runReference, sampleG, testScalars)
	second := make([]float64, len(sampleG))
	for i := range second {
		second[i] = float64(i) - 2.5
	}
	in[spec.InputProbed] = reference.Floats(second, rule.Shape...)
	after := runReference(t, p, in)[spec.InputX].Floats
	for i, x := range sampleX {
		e := 1.5 * (x - 0.25*math.RoundToEven(x/0.25))
		g, s := 0.5*sampleG[i]+e, 0.5*second[i]+e
		for name, c := range map[string][2]float64{
			"point":                 {point[i], x + 0.1*g},
			"x without a probe due": {before[spec.InputX].Floats[i], x*(1-0.1*0.5) - 0.1*g},
			"x":                     {after[i], x*(1-0.1*0.5) - 0.1*(2*s-g+100)},
		} {
			if !(math.Abs(c[0]-c[1]) <= 1e-12) {
				t.Errorf("element %d of %s is %v, want %v", i, name, c[0], c[1])
			}
		}
	}
}
