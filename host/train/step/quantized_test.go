package step_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// TestQuantized: alone, a weight is quantized to the bits that a step computes with.
func TestQuantized(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		rotated  bool
	}{
		"quest":         {`quantizer={plugin="quest"}`, true},
		"quest, none":   {`quantizer={plugin="quest", rotation="none"}`, false},
		"absmax, group": {`quantizer={plugin="absmax", granularity="group", group=8}`, false},
		"mxfp4":         {`quantizer={plugin="mxfp4"}`, false},
		"nvfp4":         {`quantizer={plugin="nvfp4", rotation="16"}`, true},
		"lsq, trained":  {`quantizer={plugin="lsq"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `train.rotations="full"`, c.settings)
			plan := testrun.Plan(t, cfg)
			k := testrun.Compile(t, plan)
			s, err := k.NewState(1, testrun.Tokens(1, cfg.Train.Batch, cfg.Model.Context+1, vocab))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want, err := step.QuantizedValues(k, s)
			if err != nil || len(want) == 0 {
				t.Fatalf("%d weights, error %v", len(want), err)
			}
			for weight, values := range want {
				q, err := k.Quantized(s, weight)
				if err != nil {
					t.Fatal(err)
				}
				if len(q.Value) != len(values) || len(q.Codes) != len(values) || len(q.Scale) == 0 || (q.Rotation > 0) != c.rotated {
					t.Fatalf("%s: %d values, %d codes, %d scales of shape %v, rotation %d", weight, len(q.Value), len(q.Codes), len(q.Scale), q.ScaleShape, q.Rotation)
				}
				for i, v := range q.Value {
					if v != values[i] || math.IsNaN(float64(v)) {
						t.Fatalf("%s: %v at %d, the step has %v", weight, v, i, values[i])
					}
				}
			}
			if _, err := k.Quantized(s, "norm"); err == nil {
				t.Error("a norm was quantized")
			}
		})
	}
}
