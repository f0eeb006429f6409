package step_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
)

// TestRecomputeSameBits trains with and without blocks that the backward pass computes again, on
// each architecture and with quantizers of weights and activations, also trained ones. Losses and
// everything that was trained agree to the last bit.
func TestRecomputeSameBits(t *testing.T) {
	effort.Long(t, "compiles many steps")
	for _, kind := range []string{"llama", "olmo2"} {
		for _, quantizer := range []string{"quest", "lsq", "none"} {
			t.Run(kind+"/"+quantizer, func(t *testing.T) {
				want, losses := trained(t, kind, quantizer, "none")
				got, again := trained(t, kind, quantizer, "blocks")
				if diff := cmp.Diff(losses, again); diff != "" {
					t.Errorf("losses (-kept +recomputed):\n%s", diff)
				}
				for name, values := range want {
					if !slices.Equal(values, got[name]) {
						t.Errorf("%s differs", name)
					}
				}
			})
		}
	}
}

// trained is the state after a few steps of two micro-batches, and the losses and norms of the
// gradients along the way.
func trained(t *testing.T, kind, quantizer, recompute string) (map[string][]float32, []string) {
	t.Helper()
	cfg := testrun.Config(t, "model.vocab=32", "model.layers=3", fmt.Sprintf("model.kind=%q", kind), `optimizer.plugin="sgd"`,
		fmt.Sprintf("quantizer.plugin=%q", quantizer), "train.accumulate=2", fmt.Sprintf("train.recompute=%q", recompute))
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s, err := c.NewState(3, batches(cfg, 9, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var results []string
	for i := range 3 {
		res := run(t, c, s, batches(cfg, uint64(2*i), 2), step.Settings{Step: i + 1, Rate: 0.01, Lambda: 0})
		results = append(results, fmt.Sprint(res.Loss, res.GradNorm))
	}
	return testrun.Download(t, c, s), results
}
