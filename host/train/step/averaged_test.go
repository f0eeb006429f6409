package step_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// averaged is descent whose evaluation uses a moving average of x, except for vectors, which are
// evaluated at x.
type averaged struct{ descent }

func (averaged) Init(_ *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"mean": x}, nil
}

func (averaged) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, sdk.State{"mean": in.State["mean"].Scale(0.5).Add(in.X.Scale(0.5))}, nil
}

func (averaged) Evaluate(
	_ *program.Builder, x program.Value, state sdk.State, t sdk.Tensor,
) (program.Value, error) {
	if t.Role == sdk.TensorVector {
		return x, nil
	}
	return state["mean"], nil
}

// TestAveraged checks that evaluation uses the tensors that the optimizer provides for it, that
// they do not change the training, and that a checkpoint contains these and the trained tensors.
func TestAveraged(t *testing.T) {
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		cfg := sgdConfig(t)
		b := batches(cfg, 1, 1)
		trained := func(o sdk.Optimizer, evaluate bool) compiledStep {
			plan := planOf(t, cfg, grid{}, o)
			plan.Dispatch = dispatch
			k := started(t, cfg, plan)
			if err := k.Prepare(false); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				run(t, k.Compiled, k.State, batches(cfg, uint64(i), 1),
					step.Settings{Step: i + 1, Rate: 0.5, NextRate: 0.5, Lambda: float64(i / 3)})
				if evaluate {
					before := testrun.Download(t, k.Compiled, k.State)
					evaluated(t, k.Compiled, k.State, b[0])
					sameBits(t, "the state after an evaluation", before, testrun.Download(t, k.Compiled, k.State))
				}
			}
			return k
		}
		plain, k := trained(descent{}, false), trained(averaged{}, true)
		stored := testrun.Tensors(t, k.Compiled, k.State)
		byName := testrun.Download(t, k.Compiled, k.State)
		for name, values := range testrun.Download(t, plain.Compiled, plain.State) {
			if diff := cmp.Diff(values, byName[name]); diff != "" {
				t.Errorf("%s: %s is not what it is without an average", dispatch, name)
			}
		}
		got := evaluated(t, k.Compiled, k.State, b[0])
		if slices.Equal(got, evaluated(t, plain.Compiled, plain.State, b[0])) {
			t.Errorf("%s: the average is not evaluated", dispatch)
		}
		// Load the tensors for evaluation as the parameters of a training without averages.
		load := loaded(stored)
		s, err := plain.UploadParams(
			func(name string) (step.Tensor, error) { return load(step.EvaluationNames(name)[0]) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		if diff := cmp.Diff(evaluated(t, plain.Compiled, s, b[0]), got); diff != "" {
			t.Errorf("%s: the average in a checkpoint is not the one that is evaluated:\n%s", dispatch, diff)
		}
		n := 0
		for name := range byName {
			if strings.HasPrefix(name, "evaluated/") {
				n++
			}
		}
		if want := len(k.Plan().Rules); n != want {
			t.Errorf("%s: a checkpoint has %d evaluated tensors, want %d", dispatch, n, want)
		}
		next := throughCheckpoint(t, k.Compiled, k.State)
		sameBits(t, "through a checkpoint", byName, testrun.Download(t, k.Compiled, next))
	}
}
