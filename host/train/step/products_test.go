package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// TestIntegerProducts trains with products of codes and with those of values: the losses are the
// same but for rounding. In float32 only sums are rounded, and those of values alone; in bfloat16
// values are, too, and no codes. The evaluation multiplies as the training does.
func TestIntegerProducts(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for i, tt := range []struct {
		settings []string
		dispatch step.Dispatch
	}{
		{[]string{`quantizer={plugin="quest"}`}, step.Chain},
		{[]string{`quantizer={plugin="quest"}`, "train.accumulate=2"}, step.Single},
		{[]string{`quantizer={plugin="quest", form="official"}`, `train.recompute="blocks"`},
			step.Single},
		{[]string{`quantizer={plugin="absmax", bits=8}`, `model.kind="olmo2"`}, step.Single},
		{[]string{`quantizer={plugin="quest", form="ternary"}`, `model.kind="qwen3"`}, step.Chain},
		{[]string{`quantizer={plugin="lsq"}`}, step.Single},
		{[]string{`quantizer.weights={plugin="quest", rotation="none"}`,
			`quantizer.activations={plugin="absmax"}`}, step.Single},
	} {
		// Usually the settings take turns with the precisions.
		for precision, tolerance := range map[device.Precision]float64{device.Float32: 1e-4,
			device.BFloat16: 5e-3} {
			if !testlevel.All() && (i%2 == 0) != (precision == device.Float32) {
				continue
			}
			t.Run(fmt.Sprint(tt.settings, tt.dispatch, precision), func(t *testing.T) {
				cfg := testrun.Config(t, append([]string{testrun.TwoLayers, "model.vocab=32"},
					tt.settings...)...)
				want := lossesBy(t, cfg, engine.Options{Precision: precision, Products: device.FloatProducts},
					tt.dispatch)
				got := lossesBy(t, cfg, engine.Options{Precision: precision, Products: device.IntegerProducts},
					tt.dispatch)
				differ := false
				for i := range want {
					near(t, fmt.Sprint("loss ", i), got[i], want[i], tolerance)
					differ = differ || got[i] != want[i]
				}
				// One scale for a whole matrix XLA multiplies with after the product, which is then one of
				// whole numbers.
				if oneScale := strings.Contains(tt.settings[0], "lsq"); !differ && !oneScale {
					t.Error("all losses are the same, to the last bit: no integers were multiplied")
				}
			})
		}
	}
}

// TestFusedFloat32 trains with the library's operations and with products, attention and passes of
// this project: the losses are the same but for the order of sums.
func TestFusedFloat32(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, tt := range []struct {
		settings []string
		dispatch step.Dispatch
	}{
		{[]string{`quantizer={plugin="none"}`, "train.accumulate=2"}, step.Chain},
		{[]string{`quantizer={plugin="quest"}`, `train.recompute="blocks"`}, step.Single},
		{[]string{`quantizer={plugin="mxfp4"}`, `model.kind="qwen3"`}, step.Chain},
		{[]string{`quantizer={plugin="lsq"}`, `model.kind="olmo2"`}, step.Chain},
		{[]string{`quantizer={plugin="quest"}`, `quantizer.keys={plugin="absmax", bits=8}`,
			`quantizer.values={plugin="absmax", bits=8}`}, step.Single},
	} {
		t.Run(fmt.Sprint(tt.settings, tt.dispatch), func(t *testing.T) {
			cfg := testrun.Config(t, append([]string{testrun.TwoLayers, "model.vocab=32"},
				tt.settings...)...)
			want := lossesOn(t, cfg, testdevice.OpenCPU(t, engine.Options{Kernels: device.GraphKernels}),
				tt.dispatch)
			for _, attention := range []device.Attention{device.FusedAttention, device.PlainAttention} {
				got := lossesOn(t, cfg,
					testdevice.OpenCPU(t, engine.Options{Kernels: device.FusedKernels, Attention: attention}),
					tt.dispatch)
				if slices.Equal(got, want) {
					t.Error("all losses are the same, to the last bit: the library has computed both")
				}
				for i := range want {
					near(t, fmt.Sprintf("with %s attention, loss %d", attention, i), got[i], want[i], 1e-4)
				}
			}
		})
	}
}

// lossesBy are the losses of three steps, and then of each token in an evaluation.
func lossesBy(
	t *testing.T, cfg *config.Config, o engine.Options, dispatch step.Dispatch,
) (losses []float64) {
	t.Helper()
	return lossesOn(t, cfg, testdevice.Open(t, o), dispatch)
}

// lossesOn is lossesBy on a device.
func lossesOn(
	t *testing.T, cfg *config.Config, d *engine.Device, dispatch step.Dispatch,
) (losses []float64) {
	t.Helper()
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = dispatch
	c := compileOn(t, d, plan)
	b := batches(cfg, 5, cfg.Train.Accumulate)
	s := newState(t, c, b[0]...)
	for i := range 3 {
		losses = append(losses,
			run(t, c, s, b, step.Settings{Step: i + 1, Rate: 1e-4, NextRate: 1e-4, Lambda: 1}).Loss)
	}
	return append(losses, wide(evaluated(t, c, s, b[0]))...)
}

// TestBFloat16 trains a quantized model for thirty steps on one batch, in float32 and with products
// in bfloat16: the loss falls as far, though not to the same digits, the correction is computed,
// and parameters, states and losses are float32.
func TestBFloat16(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.accumulate=2")
	plan := testrun.Plan(t, cfg)
	losses := map[device.Precision][]float64{}
	for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
		c := compileOn(t, testdevice.Open(t, engine.Options{Precision: precision}), plan)
		s := newState(t, c)
		b := batches(cfg, 5, 2)
		for i := range 30 {
			res := run(t, c, s, b, step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3, Lambda: 1})
			if res.Skipped {
				t.Fatalf("%s: step %d was skipped", precision, i+1)
			}
			losses[precision] = append(losses[precision], res.Loss)
		}
		for name, b := range s.Tensors {
			if b.Shape().DType.String() != "Float32" {
				t.Fatalf("%s: %s is %s", precision, name, b.Shape())
			}
		}
	}
	exact, rounded := losses[device.Float32], losses[device.BFloat16]
	near(t, "the first loss", rounded[0], exact[0], 2e-3)
	if rounded[0] == exact[0] {
		t.Error("the first loss is that of float32, to the last bit: nothing was rounded")
	}
	fall, want := rounded[0]-rounded[29], exact[0]-exact[29]
	if math.Abs(fall-want) > 0.1*want || want < 0.5 {
		t.Errorf("the loss fell by %.3f, in float32 by %.3f", fall, want)
	}
}
