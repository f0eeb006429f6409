package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// pacer steps along the gradient, with a rate of its own: α·max|x|·loss·t/T.
type pacer struct{ sgd }

func (pacer) Rate(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return in.Rate.Mul(in.X.Abs().MaxAll()).Mul(in.Loss).Mul(in.Step.Div(in.Steps)), nil
}

// TestPacer: an optimizer's own rate, taken at the weight before decay, takes the place of the
// schedule's everywhere, in each form and variant.
func TestPacer(t *testing.T) {
	grid := func(x float64) float64 { return 0.25 * math.RoundToEven(x/0.25) }
	scalars := map[string]float64{InputStep: 3, InputSteps: 12, InputLoss: 2, InputRate: 0.2, InputNextRate: 0.1, InputClip: 1, InputLambda: 1.5}
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
		"coupled":    {Coupled, Paper, false, func(x, g float64) float64 { return x*(1-α*decay) - α*(g+λ*(x-grid(x))) }},
		"decay last": {Decoupled, Paper, true, func(x, g float64) float64 { return (x-α*g)*(1-α*decay) - α*λ*(x-grid(x)) }},
		"off":        {Off, Paper, false, func(x, g float64) float64 { return x*(1-α*decay) - α*g }},
	} {
		rule := testRule(t, pacer{}, "fixed grid 0.25", 2, 3)
		rule.Form, rule.Variant, rule.Decay, rule.DecayLast, rule.RateFactor = c.form, c.variant, decay, c.last, factor
		out := runRule(t, rule, sampleX, sampleG, scalars)
		for i, got := range out[OutputX].Floats {
			if want := c.want(sampleX[i], sampleG[i]); math.Abs(got-want) > 1e-14 {
				t.Errorf("%s: element %d is %v, want %v", name, i, got, want)
			}
		}
		if got := out[OutputRate].Floats[0]; math.Abs(got-α) > 1e-15 {
			t.Errorf("%s: the rate is %v, want %v", name, got, α)
		}
	}
}

// TestScalarsThatAreRead: steps and loss are inputs of a rule whose optimizer reads them.
func TestScalarsThatAreRead(t *testing.T) {
	for o, want := range map[sdk.Optimizer]int{sgd{}: 0, pacer{}: 2} {
		n := 0
		for _, in := range testRule(t, o, "", 2, 3).Inputs() {
			if in.Name == InputSteps || in.Name == InputLoss {
				n++
			}
		}
		if n != want {
			t.Errorf("%T: %d of steps and loss, want %d", o, n, want)
		}
	}
}
