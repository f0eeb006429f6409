package step_test

import (
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// TestFullGradient: with the gradient at x, a step without correction is that of a
// training without quantization, bit for bit, and one with it moves each quantized
// weight by −α·λ·e more, in both forms. ‖P_λ‖ is that of the gradient at x.
func TestFullGradient(t *testing.T) {
	for _, form := range []string{`method.form="decoupled"`, `method.form="coupled"`} {
		t.Run(form, func(t *testing.T) {
			cfg := sgdConfig(t, `method.gradient="full"`, form, "train.accumulate=2")
			full := testrun.Compile(t, testrun.Plan(t, cfg))
			plain := testrun.Compile(t, testrun.Plan(t, testrun.Again(t, cfg, `quantizer.weights.plugin="none"`, `quantizer.activations.plugin="none"`, `method.form="off"`)))
			b := batches(cfg, 5, 2)
			after := func(c *step.Compiled, lambda float64) (map[string][]float32, step.Result) {
				s := newState(t, c)
				res := run(t, c, s, b, step.Settings{Step: 1, Rate: 0.5, NextRate: 0.5, Lambda: lambda, Pareto: true, ParetoLambda: 1.5})
				return testrun.Download(t, c, s), res
			}
			want, _ := after(plain, 0)
			silent, res := after(full, 0)
			sameBits(t, "without correction", silent, want)
			e, _ := errors64(t, full, newState(t, full))
			near(t, "‖P_λ‖", res.Pareto, paretoNorm(full, gradients(t, plain, b), e, 1.5), 1e-5)
			if res.ParetoSTE != 0 {
				t.Errorf("there is a measure of the gradient at Q(x), %v", res.ParetoSTE)
			}
			corrected, _ := after(full, 1.5)
			at := 0
			for _, rule := range full.Plan().Rules {
				name := "param/" + rule.Name
				for i, x := range silent[name] {
					wanted := float64(x)
					if rule.Quantizer != nil {
						wanted -= 0.5 * 1.5 * e[at][i]
					}
					if d := float64(corrected[name][i]) - wanted; d > 1e-7 || d < -1e-7 {
						t.Fatalf("%s at %d is %v, want %v", name, i, corrected[name][i], wanted)
					}
				}
				if rule.Quantizer != nil {
					at++
				}
			}
		})
	}
}
