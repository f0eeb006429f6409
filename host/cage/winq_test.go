package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestWinQ checks that weights are κ·x + (1−κ)·Q(x) after each k-th step, and those of the
// optimizer after the others, and that a weight with an infinite element is left alone.
func TestWinQ(t *testing.T) {
	m := WinQ{Every: 3, Kept: 0.2}
	at := plugintest.Normal(1, 4, 32).Data
	for step := 1; step <= 7; step++ {
		rule := testRule(t, sgd{}, "fixed grid 0.25", 4, 32)
		rule.Method, rule.Mode = m, m.Mode(At{Step: step, Steps: 7})
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		gradient := plugintest.Normal(uint64(step), 4, 32).Data
		if step == 6 {
			gradient[5] = math.Inf(1)
		}
		in := map[string]reference.Tensor{spec.InputX: reference.Floats(at, 4, 32)}
		out := runReference(t, p, stepInputs(t, rule, in, *rule.Quantizer, runReference, gradient,
			map[string]float64{spec.InputStep: float64(step), spec.InputRate: 0.1, InputNextRate: 0.1,
				InputClip: 1, InputLambda: 0}))
		want := make([]float64, len(at))
		for i := range want {
			want[i] = at[i] - 0.1*gradient[i]
			if step == 3 {
				want[i] = 0.2*want[i] + 0.8*0.25*math.RoundToEven(want[i]/0.25)
			}
		}
		plugintest.Near(t, "x", out[spec.InputX].Floats, want, 1e-14)
		if step != 6 {
			at = want
		}
	}
}

// TestWinQNoise compares the value of training, and its surrogate, with those of the quantizer at
// weights with the noise of the key, and checks that evaluation has none.
func TestWinQNoise(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 64, 64)
	plain := *rule.Quantizer
	noisy, err := WinQ{Every: 3, Noise: 0.1}.Forward(&Weight{Quantizer: plain}, 10)
	if err != nil {
		t.Fatal(err)
	}
	x := plugintest.Normal(1, 64, 64).Data
	in := map[string]reference.Tensor{spec.InputX: reference.Floats(x, 64, 64),
		spec.InputNoise: reference.Uints([]uint32{7, 9}, 2)}
	out := runReference(t, noisy.Program, in)
	at := out[spec.OutputSurrogate].Floats // of this quantizer it is what is rounded
	mean, square := 0.0, 0.0
	for i, v := range out[spec.OutputValue].Floats {
		if want := 0.25 * math.RoundToEven(at[i]/0.25); !(math.Abs(v-want) <= 1e-12) {
			t.Fatalf("value %v at %d, want %v", v, i, want)
		}
		d := (at[i] - x[i]) / 0.1
		mean, square = mean+d/4096, square+d*d/4096
	}
	// The standard errors are 1/64 and √2/64.
	if math.Abs(mean) > 0.06 || math.Abs(square-1) > 0.09 {
		t.Errorf("the noise has the mean %v and the mean square %v", mean, square)
	}
	delete(in, spec.InputNoise)
	evaluated := runReference(t, noisy.Evaluate, in)[spec.OutputValue].Floats
	plugintest.Near(t, "evaluation", evaluated, runReference(t, plain.Program,
		in)[spec.OutputValue].Floats, 0)
}
