package cage

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/spec"
)

// TestDecayLast computes by hand one step with weight decay after the optimizer's update, as in the
// official SOAP: x ← x − α·u; x ← x − α·ω·x. The paper's variant uses the residual of the incoming
// x, the official one the residual of the result.
func TestDecayLast(t *testing.T) {
	const decay = 0.2
	rate, next, lambda := testScalars[spec.InputRate], testScalars[InputNextRate],
		testScalars[InputLambda]
	for _, quantizer := range []string{"fixed grid 0.25", "paper QuEST 4-bit per row, no rotation"} {
		for _, c := range []struct {
			form    Form
			variant Variant
			want    func(x, g []float64, q func([]float64) []float64) []float64
		}{
			{Off, Paper, func(x, g []float64, _ func([]float64) []float64) []float64 {
				return decayed(x, g, rate, decay)
			}},
			{Decoupled, Paper, func(x, g []float64, q func([]float64) []float64) []float64 {
				return minus(decayed(x, g, rate, decay), rate*lambda, residual(x, q))
			}},
			{Decoupled, Official, func(x, g []float64, q func([]float64) []float64) []float64 {
				y := decayed(x, g, rate, decay)
				return minus(y, next*lambda, residual(y, q))
			}},
			{Coupled, Paper, func(x, g []float64, q func([]float64) []float64) []float64 {
				return decayed(x, minus(g, -lambda, residual(x, q)), rate, decay)
			}},
		} {
			t.Run(fmt.Sprintf("%s/%s/%s", quantizer, c.form, c.variant), func(t *testing.T) {
				rule := testRule(t, sgd{}, quantizer, 2, 3)
				rule.Method, rule.Mode = correcting(c.form, c.variant)
				rule.Decay, rule.DecayLast = decay, true
				got := runRule(t, rule, sampleX, sampleG, testScalars)[spec.InputX].Floats
				want := c.want(sampleX, sampleG, byHand(quantizer))
				for i := range want {
					if !(math.Abs(got[i]-want[i]) <= 1e-15) {
						t.Errorf("element %d: %v, want %v", i, got[i], want[i])
					}
				}
				rule.DecayLast = false
				if first := runRule(t, rule, sampleX, sampleG,
					testScalars)[spec.InputX].Floats; first[0] == got[0] {
					t.Error("the order of decay and update changes nothing")
				}
			})
		}
	}
}

// decayed returns (1 − α·ω)·(x − α·g).
func decayed(x, g []float64, rate, decay float64) []float64 {
	y := minus(x, rate, g)
	return minus(y, rate*decay, y)
}

func minus(x []float64, factor float64, y []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] - factor*y[i]
	}
	return out
}

func residual(x []float64, q func([]float64) []float64) []float64 { return minus(x, 1, q(x)) }

// byHand returns a quantizer of these tests as a Go function, for rows of three elements.
func byHand(name string) func([]float64) []float64 {
	return func(x []float64) []float64 {
		out := make([]float64, len(x))
		for at := 0; at < len(x); at += 3 {
			step, low, high := 0.25, math.Inf(-1), math.Inf(1)
			if name != "fixed grid 0.25" {
				sum := 0.0
				for _, v := range x[at : at+3] {
					sum += v * v
				}
				step, low, high = math.Sqrt(sum/3)*2.370255550006294/7, -8, 7
			}
			for i := at; i < at+3; i++ {
				out[i] = step * min(max(math.RoundToEven(x[i]/step), low), high)
			}
		}
		return out
	}
}

// TestDecayOrderWithoutDecay checks that DecayLast changes nothing without decay.
func TestDecayOrderWithoutDecay(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 3)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	first, err := rule.Program()
	if err != nil {
		t.Fatal(err)
	}
	rule.DecayLast = true
	if last, err := rule.Program(); err != nil || last.Hash() != first.Hash() {
		t.Errorf("another program: %v", err)
	}
}

// TestRateFactor computes by hand one step of SGD for a tensor with a rate factor, which multiplies
// the rate of the update, of the decay and of the correction, in all its forms, and α_{t+1} of the
// official variant.
func TestRateFactor(t *testing.T) {
	for _, factor := range []float64{0.3, 0} {
		testRateFactor(t, factor)
	}
}

func testRateFactor(t *testing.T, factor float64) {
	const grid, decay = 0.25, 0.2
	round := func(x float64) float64 { return math.RoundToEven(x/grid) * grid }
	rate, next, lambda := factor*testScalars[spec.InputRate], factor*testScalars[InputNextRate],
		testScalars[InputLambda]
	official := func(y float64) float64 { return y - next*lambda*(y-round(y)) }
	for _, c := range []struct {
		form    Form
		variant Variant
		decay   float64
		want    func(x, g float64) float64
	}{
		{Off, Paper, 0, func(x, g float64) float64 { return x - rate*g }},
		{Off, Paper, decay, func(x, g float64) float64 { return (1-rate*decay)*x - rate*g }},
		{Decoupled, Paper, 0,
			func(x, g float64) float64 { return x - rate*g - rate*lambda*(x-round(x)) }},
		{Decoupled, Paper, decay, func(x, g float64) float64 {
			x *= 1 - rate*decay
			return x - rate*g - rate*lambda*(x-round(x))
		}},
		{Decoupled, Official, 0, func(x, g float64) float64 { return official(x - rate*g) }},
		{Decoupled, Official, decay,
			func(x, g float64) float64 { return official((1-rate*decay)*x - rate*g) }},
		{Coupled, Paper, decay,
			func(x, g float64) float64 { return (1-rate*decay)*x - rate*(g+lambda*(x-round(x))) }},
	} {
		t.Run(fmt.Sprintf("%v/%s/%s/%v", factor, c.form, c.variant, c.decay), func(t *testing.T) {
			rule := testRule(t, sgd{}, fmt.Sprint("fixed grid ", grid), 2, 3)
			rule.Method, rule.Mode = correcting(c.form, c.variant)
			rule.Decay, rule.RateFactor = c.decay, factor
			out := runRule(t, rule, sampleX, sampleG, testScalars)[spec.InputX].Floats
			rule.RateFactor = 1
			whole := runRule(t, rule, sampleX, sampleG, testScalars)[spec.InputX].Floats
			for i, x := range sampleX {
				if want := c.want(x, sampleG[i]); !(math.Abs(out[i]-want) <= 1e-15) {
					t.Errorf("element %d: %v, want %v", i, out[i], want)
				}
				if factor == 0 && out[i] != x {
					t.Errorf("element %d: %v, want %v as it was", i, out[i], x)
				}
				if out[i] == whole[i] {
					t.Errorf("element %d: the factor changes nothing", i)
				}
			}
		})
	}
}

// TestRateFactorOfSharedResidual checks that the factor acts on the rate and the decay where the
// residual is computed from that of the forward pass.
func TestRateFactorOfSharedResidual(t *testing.T) {
	rule := testRule(t, sgd{}, "paper QuEST 4-bit per row, no rotation", 2, 3)
	rule.Method, rule.Mode = correcting(Decoupled, Paper)
	rule.Decay, rule.RateFactor = 0.2, 0.3
	short := runRule(t, rule, sampleX, sampleG, testScalars)[spec.InputX].Floats
	scaled := map[string]float64{}
	for name, v := range testScalars {
		scaled[name] = v
	}
	scaled[spec.InputRate] *= 0.3
	rule.RateFactor = 1
	want := runRule(t, rule, sampleX, sampleG, scaled)[spec.InputX].Floats
	for i := range want {
		if !(math.Abs(short[i]-want[i]) <= 1e-15) {
			t.Errorf("element %d: %v, want %v as with a smaller rate", i, short[i], want[i])
		}
	}
}
