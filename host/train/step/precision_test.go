package step_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// TestBFloat16 trains a quantized model for thirty steps on one batch, in float32 and with products in bfloat16: the
// loss falls as far, though not to the same digits, the correction is computed, and parameters, states and losses are
// float32.
func TestBFloat16(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.accumulate=2")
	plan := testrun.Plan(t, cfg)
	losses := map[device.Precision][]float64{}
	for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
		c, err := step.Compile(testdevice.Open(t, engine.Options{Precision: precision}), plan)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
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
