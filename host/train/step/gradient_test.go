package step_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestFullGradient checks that, with the gradient at x, a step without correction has the same bits
// as without quantization, and that the correction moves each quantized weight by another −α·λ·e,
// in both forms. ‖P_λ‖ uses the gradient at x.
func TestFullGradient(t *testing.T) {
	for _, form := range []string{`method.form="decoupled"`, `method.form="coupled"`} {
		t.Run(form, func(t *testing.T) {
			cfg := sgdConfig(t, `method.gradient="full"`, form, "train.accumulate=2")
			full := testrun.Compile(t, testrun.Plan(t, cfg))
			plain := testrun.Compile(t,
				testrun.Plan(t, testrun.Again(t, cfg, `quantizer.weights.plugin="none"`,
					`quantizer.activations.plugin="none"`, `method.form="off"`)))
			b := batches(cfg, 5, 2)
			after := func(c *step.Compiled, lambda float64) (map[string][]float32, step.Result) {
				s := newState(t, c)
				res := run(t, c, s, b, step.Settings{Step: 1, Rate: 0.5, NextRate: 0.5, Lambda: lambda,
					Pareto: true, ParetoLambda: 1.5})
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

// TestRecomputeSameBits checks that losses and trained tensors have the same bits whether or not
// the backward pass recomputes blocks or attention, for two architectures and for quantizers with
// and without trained parameters.
func TestRecomputeSameBits(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, kind := range []string{"llama", "olmo2"} {
		for _, quantizer := range []string{"quest", "lsq", "none"} {
			t.Run(kind+"/"+quantizer, func(t *testing.T) {
				want, losses := trained(t, kind, quantizer, "none")
				for _, recompute := range []string{"attention", "blocks"} {
					got, again := trained(t, kind, quantizer, recompute)
					if diff := cmp.Diff(losses, again); diff != "" {
						t.Errorf("losses (-kept +%s recomputed):\n%s", recompute, diff)
					}
					for name, values := range want {
						if !slices.Equal(values, got[name]) {
							t.Errorf("%s recomputed: %s differs", recompute, name)
						}
					}
				}
			})
		}
	}
}

// trained returns the state after a few steps of two micro-batches, and the loss and gradient norm
// of each step.
func trained(t *testing.T, kind, quantizer, recompute string) (map[string][]float32, []string) {
	t.Helper()
	cfg := testrun.Config(t, "model.vocab=32", "model.layers=3", fmt.Sprintf("model.kind=%q", kind),
		`optimizer.plugin="sgd"`,
		fmt.Sprintf("quantizer.plugin=%q", quantizer), "train.accumulate=2",
		fmt.Sprintf("train.recompute=%q", recompute))
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c, batches(cfg, 9, 1)[0]...)
	var results []string
	for i := range 3 {
		res := run(t, c, s, batches(cfg, uint64(2*i), 2),
			step.Settings{Step: i + 1, Rate: 0.01, Lambda: 0})
		results = append(results, fmt.Sprint(res.Loss, res.GradNorm))
	}
	return testrun.Download(t, c, s), results
}
