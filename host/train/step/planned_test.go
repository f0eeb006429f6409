package step_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// TestPlannedQuantizers checks that a plan computes a model with quantized activations as the
// graph does: the losses of an evaluation, the loss of the first step, and the norm of each
// gradient, also those of trained parameters, with noise, and with recomputation. For some batches
// the sums of both differ in a bit that a quantizer rounds to another code, and then everything
// differs: one of four must have none.
func TestPlannedQuantizers(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	var cases [][]string
	table := testrun.Example(t, "nf4")
	for i, quantizer := range append([]string{`{plugin="mseden"}`, `{plugin="` + table.Path + `"}`,
		`{plugin="mxfp4", rounding="stochastic"}`}, quantizers...) {
		cases = append(cases, []string{"quantizer.weights=" + quantizer,
			"quantizer.activations=" + quantizer,
			fmt.Sprintf("model.kind=%q", []string{"llama", "olmo2", "qwen3"}[i%3]),
			fmt.Sprintf("train.recompute=%q", []string{"none", "blocks"}[i%2])})
	}
	for _, kind := range []string{"llama", "qwen3"} {
		cases = append(cases, []string{`quantizer={plugin="quest"}`, `quantizer.keys={plugin="lsq"}`,
			`quantizer.values={plugin="absmax", bits=8}`, `quantizer.queries={plugin="mxfp4"}`,
			`quantizer.head={plugin="absmax"}`, fmt.Sprintf("model.kind=%q", kind)})
	}
	for _, settings := range cases {
		t.Run(fmt.Sprint(settings), func(t *testing.T) {
			cfg := testrun.Config(t, append([]string{"model.layers=1", "model.vocab=32",
				"model.hidden=64"}, settings...)...)
			plan := testrun.Plan(t, cfg)
			if !plan.PlansQuantizers() {
				t.Fatal("these quantizers are computed by the graph")
			}
			var wrong string
			for seed := range uint64(4) {
				b := batches(cfg, seed, 1)
				one := func(attention device.Attention) (step.Result, []float32) {
					c := compileOn(t, testdevice.OpenCPU(t, engine.Options{Attention: attention}), plan)
					s := newState(t, c, b[0]...)
					losses := evaluated(t, c, s, b[0])
					return run(t, c, s, b,
						step.Settings{Step: 1, Steps: 2, Rate: 1e-4, NextRate: 1e-4, Lambda: 1}), losses
				}
				want, wantLosses := one(device.PlainAttention)
				got, losses := one(device.FusedAttention)
				wrong = ""
				for i, loss := range wantLosses {
					if math.Abs(float64(losses[i]-loss)) > 1e-5*float64(loss) {
						wrong = fmt.Sprintf("the loss of token %d is %v, want %v", i, losses[i], loss)
					}
				}
				if math.Abs(got.Loss-want.Loss) > 1e-6*want.Loss {
					wrong += fmt.Sprintf("\nthe loss is %v, want %v", got.Loss, want.Loss)
				}
				for i, norm := range want.GradNorms {
					if math.Abs(got.GradNorms[i]-norm) > 1e-5*norm+1e-9 {
						wrong += fmt.Sprintf("\nthe norm of gradient %d is %v, want %v", i, got.GradNorms[i], norm)
					}
				}
				if wrong == "" {
					return
				}
			}
			t.Error(wrong)
		})
	}
}
