package step_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// learned is a quantizer with a trained scale s: Q(x) = round(8x/s)·s/8, differentiated as x + s,
// so that the gradient of s is the sum of the gradients of the values.
type learned struct{}

func (learned) Describe() sdk.Description { return sdk.Description{Name: "learned"} }

func (learned) InitTrained(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"s": x.Abs().ReduceMax(0, 1).Shift(0.5)}, nil
}

func (learned) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	s := site.Trained["s"]
	value := x.Div(s).Scale(8).Round().Mul(s).Scale(1.0 / 8)
	return sdk.Quantized{Value: value, Surrogate: x.Add(s)}, nil
}

// TestTrainedParameters checks that trained parameters of quantizers start from the tensor, get the
// surrogate's gradient, and go through checkpoints like all others.
func TestTrainedParameters(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	c := testrun.Compile(t, planOf(t, cfg, learned{}, descent{}))
	plan := c.Plan()
	if got, want := len(plan.Trained()), len(plan.Weights)+len(plan.Activations); got != want {
		t.Fatalf("%d trained parameters, want one for each of %d quantizers", got, want)
	}
	b := batches(cfg, 1, 1)
	s := throughCheckpoint(t, c, newState(t, c, b[0]...))
	before := testrun.Download(t, c, s)
	run(t, c, s, b, step.Settings{Step: 1, Rate: 1})
	after := testrun.Download(t, c, s)
	for _, p := range plan.Model.Params() {
		if !p.Quantized {
			continue
		}
		largest, moved := 0.0, 0.0
		for i, x := range before["param/"+p.Name] {
			largest = math.Max(largest, math.Abs(float64(x)))
			moved += float64(after["param/"+p.Name][i]) - float64(x)
		}
		name := "param/" + spec.Tensor{Name: "s"}.At(p.Name)
		if got := float64(before[name][0]); math.Abs(got-largest-0.5) > 1e-6 {
			t.Errorf("%s starts at %v, want %v", name, got, largest+0.5)
		}
		// d/ds is the sum of d/dx, so plain gradient descent moves s by the sum of the moves of x.
		if got := float64(after[name][0] - before[name][0]); math.Abs(got-moved) > 1e-4 {
			t.Errorf("%s moved by %v, want the %v that the weights moved together", name, got, moved)
		}
	}
	for _, site := range plan.Model.ActivationSites(plan.Batch, plan.Context) {
		name := "param/" + spec.Tensor{Name: "s"}.At(site.Name)
		if before[name][0] < 0.5 || before[name][0] == after[name][0] {
			t.Errorf("%s was %v and is %v after a step", name, before[name], after[name])
		}
	}
}

// TestTrainedParametersAccumulate checks that two micro-batches give the mean of their gradients.
func TestTrainedParametersAccumulate(t *testing.T) {
	moves := func(accumulate int, parts ...int) map[string][]float32 {
		cfg := sgdConfig(t, "train.weight_decay=0.0")
		plan := planOf(t, cfg, learned{}, descent{})
		plan.Accumulate = accumulate
		c := testrun.Compile(t, plan)
		all := batches(cfg, 1, 2)
		s := newState(t, c, all[0]...)
		before := testrun.Download(t, c, s)
		var chosen [][]int32
		for _, i := range parts {
			chosen = append(chosen, all[i])
		}
		run(t, c, s, chosen, step.Settings{Step: 1, Rate: 0.01})
		after := testrun.Download(t, c, s)
		for name, values := range after {
			for i := range values {
				values[i] -= before[name][i]
			}
		}
		return after
	}
	first, second, both := moves(1, 0), moves(1, 1), moves(2, 0, 1)
	for name, values := range both {
		for i := range values {
			mean := (first[name][i] + second[name][i]) / 2
			if math.Abs(float64(values[i]-mean)) > 1e-6 {
				t.Fatalf("%s, element %d: two micro-batches move it by %v, want %v", name, i, values[i], mean)
			}
		}
	}
}

// TestCorrectionWithTrainedScale checks that the correction reads the trained parameters as
// constants and does not move them.
func TestCorrectionWithTrainedScale(t *testing.T) {
	result := func(lambda float64) map[string][]float32 {
		cfg := sgdConfig(t, "train.weight_decay=0.1")
		c := testrun.Compile(t, planOf(t, cfg, learned{}, descent{}))
		b := batches(cfg, 1, 1)
		s := newState(t, c, b[0]...)
		run(t, c, s, b, step.Settings{Step: 1, Rate: 0.01, Lambda: lambda})
		return testrun.Download(t, c, s)
	}
	off, on := result(0), result(2)
	for name, values := range off {
		weight := false
		for _, p := range []string{"attn.qkv", "attn.out", "mlp.w1", "mlp.w2", "mlp.down"} {
			weight = weight || name == "param/layers.0."+p || name == "param/layers.1."+p
		}
		if same := cmp.Equal(values, on[name]); same == weight {
			t.Errorf("%s: the correction changes it: %t, want %t", name, !same, weight)
		}
	}
}
