package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestIntegerProducts checks that training and evaluation have the same losses with products of
// codes as with products of values, up to rounding. In float32 only the sums of values are rounded;
// in bfloat16 values are rounded, too, but not codes, and some activations get other codes: losses
// are compared together, because a single one may change by more than a hundredth.
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
		{[]string{`quantizer={plugin="quest", bits=8}`}, step.Single},
		{[]string{`quantizer={plugin="quest", form="ternary"}`, `model.kind="qwen3"`}, step.Chain},
		{[]string{`quantizer={plugin="lsq"}`}, step.Single},
		{[]string{`quantizer.weights={plugin="quest", rotation="none"}`,
			`quantizer.activations={plugin="absmax"}`}, step.Single},
	} {
		// Unless all tests run, the settings alternate between the precisions.
		for precision, tolerance := range map[device.Precision]float64{device.Float32: 1e-5,
			device.BFloat16: 2e-3} {
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
				off, all := 0.0, 0.0
				for i := range want {
					off, all = off+math.Pow(got[i]-want[i], 2), all+want[i]*want[i]
					differ = differ || got[i] != want[i]
				}
				if d := math.Sqrt(off / all); !(d < tolerance) {
					t.Errorf("the relative difference of all losses is %.2g", d)
				} else {
					t.Logf("the relative difference of all losses is %.2g", d)
				}
				// XLA multiplies by a single scale of a whole matrix after the product, which then also
				// multiplies whole numbers.
				if oneScale := strings.Contains(tt.settings[0], "lsq"); !differ && !oneScale {
					t.Error("all losses are the same, to the last bit: no integers were multiplied")
				}
			})
		}
	}
}

// TestNoIntegerProducts checks that a warning says if no product has codes of both operands, in
// training or in evaluation.
func TestNoIntegerProducts(t *testing.T) {
	for settings, want := range map[string]int{
		`quantizer={plugin="absmax"}`: 0, `quantizer={plugin="mxfp4"}`: 1, `quantizer={plugin="none"}`: 1,
		`quantizer={weights={plugin="absmax"}, activations={plugin="mxfp4"}}`: 1,
		"quantizer={plugin=\"absmax\"}\nmethod={name=\"parq\"}":               0, // in evaluation
	} {
		warnings := 0
		d := testdevice.Open(t, engine.Options{Products: device.IntegerProducts,
			Warn: func(message string, _ ...any) {
				if strings.Contains(message, "device.products") {
					warnings++
				}
			}})
		compileOn(t, d, testrun.Plan(t, testrun.Config(t,
			append(strings.Split(settings, "\n"), "model.vocab=32")...)))
		if warnings != want {
			t.Errorf("%s: %d warnings, want %d", settings, warnings, want)
		}
	}
}

// TestFusedFloat32 checks that training with the library's operations, and with this project's
// products, attention and passes over rows, has the same losses up to the order of sums.
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

// lossesBy returns the losses of three steps, and then of each token in an evaluation.
func lossesBy(
	t *testing.T, cfg *config.Config, o engine.Options, dispatch step.Dispatch,
) (losses []float64) {
	t.Helper()
	return lossesOn(t, cfg, testdevice.Open(t, o), dispatch)
}

// lossesOn is lossesBy on an open device.
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

// TestBFloat16 checks that the loss of a quantized model falls as far in thirty steps on one batch
// with products in bfloat16 as in float32, though not to the same digits, with the correction, and
// that parameters and states are float32.
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
			if b.Shape().DType != shapes.Float32 {
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
