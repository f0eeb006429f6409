package cage

import (
	"fmt"
	"math"
	"testing"
)

// TestRateFactor works out one step of SGD by hand for a tensor whose group has a rate of
// its own: the factor multiplies the rate of the update, of the decay and of the
// correction, in all forms of it, and α_{t+1} of the official variant.
func TestRateFactor(t *testing.T) {
	for _, factor := range []float64{0.3, 0} {
		testRateFactor(t, factor)
	}
}

func testRateFactor(t *testing.T, factor float64) {
	const grid, decay = 0.25, 0.2
	round := func(x float64) float64 { return math.RoundToEven(x/grid) * grid }
	rate, next, lambda := factor*testScalars[InputRate], factor*testScalars[InputNextRate], testScalars[InputLambda]
	official := func(y float64) float64 { return y - next*lambda*(y-round(y)) }
	for _, c := range []struct {
		form    Form
		variant Variant
		decay   float64
		want    func(x, g float64) float64
	}{
		{Off, Paper, 0, func(x, g float64) float64 { return x - rate*g }},
		{Off, Paper, decay, func(x, g float64) float64 { return (1-rate*decay)*x - rate*g }},
		{Decoupled, Paper, 0, func(x, g float64) float64 { return x - rate*g - rate*lambda*(x-round(x)) }},
		{Decoupled, Paper, decay, func(x, g float64) float64 {
			x *= 1 - rate*decay
			return x - rate*g - rate*lambda*(x-round(x))
		}},
		{Decoupled, Official, 0, func(x, g float64) float64 { return official(x - rate*g) }},
		{Decoupled, Official, decay, func(x, g float64) float64 { return official((1-rate*decay)*x - rate*g) }},
		{Coupled, Paper, decay, func(x, g float64) float64 { return (1-rate*decay)*x - rate*(g+lambda*(x-round(x))) }},
	} {
		t.Run(fmt.Sprintf("%v/%s/%s/%v", factor, c.form, c.variant, c.decay), func(t *testing.T) {
			rule := testRule(t, sgd{}, fmt.Sprint("fixed grid ", grid), 2, 3)
			rule.Form, rule.Variant, rule.Decay, rule.RateFactor = c.form, c.variant, c.decay, factor
			out := runRule(t, rule, sampleX, sampleG, testScalars)[OutputX].Floats
			rule.RateFactor = 1
			whole := runRule(t, rule, sampleX, sampleG, testScalars)[OutputX].Floats
			for i, x := range sampleX {
				if want := c.want(x, sampleG[i]); math.Abs(out[i]-want) > 1e-15 {
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

// TestRateFactorOfSharedResidual: where the residual is computed from that of the forward
// pass, the factor acts on the rate and on the decay.
func TestRateFactorOfSharedResidual(t *testing.T) {
	rule := testRule(t, sgd{}, "paper QuEST 4-bit per row, no rotation", 2, 3)
	rule.Form, rule.Decay, rule.RateFactor = Decoupled, 0.2, 0.3
	short := runRule(t, rule, sampleX, sampleG, testScalars)[OutputX].Floats
	scaled := map[string]float64{}
	for name, v := range testScalars {
		scaled[name] = v
	}
	scaled[InputRate] *= 0.3
	rule.RateFactor = 1
	want := runRule(t, rule, sampleX, sampleG, scaled)[OutputX].Floats
	for i := range want {
		if math.Abs(short[i]-want[i]) > 1e-15 {
			t.Errorf("element %d: %v, want %v as with a smaller rate", i, short[i], want[i])
		}
	}
}
