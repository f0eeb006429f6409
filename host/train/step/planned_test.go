package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestPlannedQuantizers checks that plans compute steps with quantized activations and backward
// passes as graphs do: the losses of an evaluation, that of the first step, gradients, also of
// trained parameters, and states, with noise, products of codes and recomputation. For some batches
// the sums of both differ in a bit that a quantizer rounds to another code, and then everything
// differs: one of four must have none.
func TestPlannedQuantizers(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	var cases [][]string
	table := testrun.Example(t, "nf4")
	for i, quantizer := range append([]string{`{plugin="mseden"}`, `{plugin="` + table.Path + `"}`,
		`{plugin="mxfp4", rounding="stochastic"}`}, quantizers...) {
		if strings.Contains(quantizer, "paretoq") {
			continue // with so few codes, sums of products are zero, and rounding decides their sign
		}
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
	backward := func(gradients, backward string, more ...string) []string {
		return append([]string{"quantizer.gradients=" + gradients, "quantizer.backward=" + backward},
			more...)
	}
	const integer = `device.products="integer"`
	delayed := testrun.Example(t, "delayed")
	const mseden = `{plugin="mseden"}`
	cases = append(cases,
		backward(mseden, mseden),
		backward(mseden, mseden, `quantizer={plugin="quest"}`, `train.recompute="blocks"`),
		backward(mseden, mseden, `quantizer={plugin="mxfp4"}`, `train.recompute="attention"`,
			`model.rope_pairs="interleaved"`),
		backward(`{plugin="nvfp4"}`, `{plugin="nvfp4"}`, `quantizer={plugin="absmax"}`,
			`train.requantize="off"`),
		backward(`{plugin="nvfp4"}`, `{plugin="none"}`, `quantizer.weights={plugin="absmax"}`,
			`quantizer.activations={plugin="none"}`, `train.requantize="off"`),
		[]string{`quantizer={plugin="absmax"}`, integer},
		[]string{`quantizer={plugin="lsq"}`, integer, `model.rope_pairs="interleaved"`,
			`train.recompute="blocks"`},
		backward(mseden, mseden, `quantizer={plugin="absmax"}`, integer),
		[]string{`quantizer={plugin="` + delayed.Path + `"}`, `quantizer.keys={plugin="` + delayed.Path +
			`"}`, "train.accumulate=2"},
	)
	for _, settings := range cases {
		t.Run(fmt.Sprint(settings), func(t *testing.T) {
			cfg := plannedConfig(t, settings...)
			plan := testrun.Plan(t, cfg)
			comparePlanned(t, cfg, plan)
		})
	}
}

// TestPlannedHeads does the same for distillation, from a teacher of another size, and for drawn
// labels.
func TestPlannedHeads(t *testing.T) {
	for name, d := range map[string]*network.Distillation{"distilled": {Beta: 0.3, Temperature: 2,
		Weight: 0.7}, "drawn": nil} {
		t.Run(name, func(t *testing.T) {
			cfg := plannedConfig(t, "model.kind=\"gemma2\"")
			plan := planOf(t, cfg, grid{}, keptSamples{})
			if d != nil {
				other := plannedConfig(t, "model.layers=2", "model.width=96")
				plan = planOf(t, cfg, grid{}, descent{})
				plan.Distillation = &step.Distillation{Distillation: *d,
					Teacher: testrun.Plan(t, other).Model.(model.Language)}
			}
			comparePlanned(t, cfg, plan)
		})
	}
}

func plannedConfig(t *testing.T, settings ...string) *config.Config {
	t.Helper()
	return testrun.Config(t, append([]string{"model.layers=1", "model.vocab=32",
		"model.hidden=64", `optimizer={plugin="sgd"}`, "train.clip=0.0"}, settings...)...)
}

// comparePlanned compares plans with graphs.
func comparePlanned(t *testing.T, cfg *config.Config, plan step.Plan) {
	t.Helper()
	var wrong string
	for seed := range uint64(4) {
		b := batches(cfg, seed, plan.Accumulate)
		var start []step.Tensor // initial scales that differ in a bit move all codes of a weight
		// one returns losses, and what a step of gradient descent subtracts from each parameter.
		one := func(kernels device.Kernels) map[string][]float32 {
			d := testdevice.OpenCPU(t, engine.Options{Products: cfg.Device.Products, Kernels: kernels})
			c := compileOn(t, d, plan)
			if plan.Distillation != nil {
				if err := c.LoadTeacher(drawn(plan.Distillation.Teacher, 7)); err != nil {
					t.Fatal(err)
				}
			}
			s := newState(t, c, b[0]...)
			if start == nil {
				start = testrun.Tensors(t, c, s)
			}
			s, err := c.Upload(loaded(start))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			list := map[string][]float32{"losses": evaluated(t, c, s, b[0])}
			before := testrun.Download(t, c, s)
			r := run(t, c, s, b, step.Settings{Step: 1, Steps: 2, Rate: 1, NextRate: 1})
			list["loss"] = []float32{float32(r.Loss), float32(r.Divergence), float32(r.CrossEntropy)}
			for name, after := range testrun.Download(t, c, s) {
				for i, x := range before[name] {
					list[name] = append(list[name], x-after[i])
				}
			}
			return list
		}
		want, got := one(device.GraphKernels), one(device.AutoKernels)
		wrong = ""
		for name, list := range want {
			largest := 0.0
			for _, x := range list {
				largest = max(largest, math.Abs(float64(x)))
			}
			for i, x := range list {
				// A parameter of magnitude 1 has a rounding error, too.
				if math.Abs(float64(got[name][i]-x)) > 1e-5*largest+2e-7 {
					wrong += fmt.Sprintf("\nelement %d of %s is %v, want %v", i, name, got[name][i], x)
					break
				}
			}
		}
		if wrong == "" {
			return
		}
	}
	t.Error(wrong)
}
