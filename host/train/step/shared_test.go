package step_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// fromOne is learned with scales that start at 1.
type fromOne struct{ learned }

func (fromOne) InitTrained(b *program.Builder, _ program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"s": b.Const(1)}, nil
}

// oneScale is fromOne with a single scale for all sites, constrained to at most 1.001.
type oneScale struct{ fromOne }

const most = 1.001

func (oneScale) Shared(string, sdk.Site) string { return "scale" }

func (oneScale) Constrain(
	b *program.Builder, _ string, v program.Value, _ sdk.Site,
) (program.Value, error) {
	return v.Min(b.Const(most)), nil
}

// TestSharedParameter checks that a trained parameter shared by weights and activations moves by
// the sum of the moves of separate parameters, goes through checkpoints, and obeys its constraint.
func TestSharedParameter(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	b := batches(cfg, 1, 1)
	after := func(q sdk.Quantizer, rate float64) map[string][]float32 {
		c := testrun.Compile(t, planOf(t, cfg, q, descent{}))
		s := throughCheckpoint(t, c, newState(t, c, b[0]...))
		run(t, c, s, b, step.Settings{Step: 1, Rate: rate})
		return testrun.Download(t, c, s)
	}
	const rate = 0.5
	sum, sites := 0.0, 0
	for name, v := range after(fromOne{}, rate) {
		if strings.HasPrefix(name, "param/quantizer.") {
			sum += float64(v[0]) - 1
			sites++
		}
	}
	name := "param/" + spec.Tensor{Shared: "scale"}.At("")
	tensors := after(oneScale{}, rate)
	if got := float64(tensors[name][0]) - 1; math.Abs(got-sum) > 1e-6 || sites < 8 ||
		math.Abs(sum) < 1e-5 {
		t.Errorf("the shared scale moved by %v, want the sum over %d sites, %v", got, sites, sum)
	}
	for other := range tensors {
		if strings.HasPrefix(other, "param/quantizer.") && other != name {
			t.Errorf("beside %s there is %s", name, other)
		}
	}
	largest := 0.0
	for _, rate := range []float64{1, -1} { // one of them increases it
		largest = math.Max(largest, float64(after(oneScale{}, rate)[name][0]))
	}
	if largest != float64(float32(most)) {
		t.Errorf("the largest shared scale after a large step is %v, want %v", largest, most)
	}
}
