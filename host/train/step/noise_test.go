package step_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// noisy is a quantizer that rounds stochastically to multiples of 1/64, after multiplying columns
// by random signs that both operands of a product share. The noise grows until the last step.
// Evaluation rounds to nearest.
type noisy struct{}

func (noisy) Describe() sdk.Description { return sdk.Description{Name: "noisy"} }

func (noisy) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if !site.Training {
		return nearest{}.Quantize(b, x, site)
	}
	signs := b.RandomBits(site.SharedNoise, 1, site.RowLen()).Shr(b.ConstUint(31)).
		Convert(program.Float).Scale(2).Shift(-1)
	u := b.RandomBits(site.Noise, site.Shape...).Shr(b.ConstUint(16)).Convert(program.Float).
		Scale(1.0 / (1 << 16))
	u = u.Shift(-0.5).Mul(site.Step.Div(site.Steps).Min(b.Const(1))).Shift(0.5)
	return sdk.Quantized{Value: x.Mul(signs).Scale(64).Add(u).Floor().Scale(1.0 / 64).Mul(signs)}, nil
}

// nearest is a quantizer that rounds to the nearest multiples of 1/64.
type nearest struct{}

func (nearest) Describe() sdk.Description { return sdk.Description{Name: "nearest"} }

func (nearest) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(64).Round().Scale(1.0 / 64)}, nil
}

// noisyStep returns a step with the quantizer noisy under the given dispatch.
func noisyStep(t *testing.T, d step.Dispatch, overrides ...string) compiledStep {
	t.Helper()
	cfg := sgdConfig(t, overrides...)
	plan := planOf(t, cfg, noisy{}, descent{})
	plan.Dispatch = d
	k := inGraphs(t, cfg, plan)
	if err := k.Prepare(true); err != nil {
		t.Fatal(err)
	}
	return k
}

// noisySettings returns the settings of step i ≥ 1.
func noisySettings(i int) step.Settings {
	return step.Settings{Step: i, Steps: 5, Rate: 0.1, NextRate: 0.05, Lambda: float64(i / 3),
		Statistics: i%2 == 0, ParetoSTE: i == 4, ParetoLambda: 1}
}

// TestNoiseOfSteps checks that a step as one executable draws the same random bits as the chain, in
// every form of the correction, for several micro-batches, and after resuming. Another seed gives
// another result.
func TestNoiseOfSteps(t *testing.T) {
	const last = 6
	for name, overrides := range map[string][]string{
		"paper":         {"train.weight_decay=0.1"},
		"official":      {`method.variant="official"`},
		"coupled, 3":    {`method.form="coupled"`, "train.accumulate=3"},
		"full gradient": {`method.gradient="full"`, "train.weight_decay=0.1", "train.accumulate=2"},
	} {
		if testing.Short() && name != "coupled, 3" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, b := noisyStep(t, step.Chain, overrides...), noisyStep(t, step.Single, overrides...)
			c := noisyStep(t, step.Single, append(overrides, "seed=1")...)
			for i := 1; i <= last; i++ {
				set := noisySettings(i)
				set.ParetoSTE = set.ParetoSTE && name != "full gradient"
				if i == 3 { // resume with the other dispatch
					b = compiledStep{a.Compiled, throughCheckpoint(t, a.Compiled, b.State)}
				}
				tokens := batches(sgdConfig(t), uint64(10*i), a.Plan().Accumulate)
				x, y := run(t, a.Compiled, a.State, tokens, set), run(t, b.Compiled, b.State, tokens, set)
				run(t, c.Compiled, c.State, tokens, set)
				sameOutcome(t, i, x, y)
			}
			sameBits(t, "after the last step", testrun.Download(t, a.Compiled, a.State),
				testrun.Download(t, b.Compiled, b.State))
			const weight = "param/layers.0.mlp.down"
			if slices.Equal(testrun.Download(t, a.Compiled, a.State)[weight],
				testrun.Download(t, c.Compiled, c.State)[weight]) {
				t.Error("another seed gives the same run")
			}
		})
	}
}

// TestNoiseOfMicroBatches checks that micro-batches with the same tokens have different noise in
// their activations, which changes the loss little, and that another step has other noise.
func TestNoiseOfMicroBatches(t *testing.T) {
	c := noisyStep(t, step.Chain, "train.accumulate=2")
	tokens := batches(sgdConfig(t), 5, 1)[0]
	set := step.Settings{Step: 3}
	twice := run(t, c.Compiled, c.State, [][]int32{tokens, tokens}, set)
	one := noisyStep(t, step.Chain)
	single := run(t, one.Compiled, one.State, [][]int32{tokens}, set)
	if twice.Loss == single.Loss {
		t.Errorf("two micro-batches of the same tokens have the loss of one: %v", single.Loss)
	}
	if math.Abs(twice.Loss-single.Loss) > 0.01*single.Loss {
		t.Errorf("the losses are %v and %v", twice.Loss, single.Loss)
	}
	set.Step++
	if again := run(t, one.Compiled, one.State, [][]int32{tokens}, set); again.Loss == single.Loss {
		t.Error("another step has the same noise")
	}
}

// TestCorrectionHasTheNoiseOfItsStep checks that a correction that quantizes again, here due to a
// decay of 1e-12, has the noise, and thus the residual, of the forward pass.
func TestCorrectionHasTheNoiseOfItsStep(t *testing.T) {
	again, kept := noisyStep(t, step.Chain, "train.weight_decay=1e-12"), noisyStep(t, step.Chain)
	tokens := batches(sgdConfig(t), 5, 1)
	set := step.Settings{Step: 7, Rate: 0.1, NextRate: 0.1, Lambda: 2}
	run(t, again.Compiled, again.State, tokens, set)
	run(t, kept.Compiled, kept.State, tokens, set)
	sameBits(t, "quantized again", testrun.Download(t, kept.Compiled, kept.State),
		testrun.Download(t, again.Compiled, again.State))
}

// TestEvaluationHasNoNoise checks that evaluation, codes and quantized weights use the evaluation
// program of the quantizer.
func TestEvaluationHasNoNoise(t *testing.T) {
	cfg := sgdConfig(t)
	tokens := batches(cfg, 5, 1)[0]
	c := noisyStep(t, step.Chain)
	want := inGraphs(t, cfg, planOf(t, cfg, nearest{}, descent{}))
	if got, want := evaluated(t, c.Compiled, c.State, tokens), evaluated(t, want.Compiled, want.State,
		tokens); !slices.Equal(got, want) {
		t.Errorf("losses are %v…, want %v…", got[:3], want[:3])
	}
	const weight = "layers.0.mlp.down"
	got, err := c.Quantized(c.State, weight)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := want.Quantized(want.State, weight)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Value, reference.Value) {
		t.Error("a quantized weight is not that of evaluation")
	}
	chosen := []step.WeightElements{{Weight: weight, Positions: []int32{0, 5, 9}}}
	var codes [2]string
	for i, s := range []compiledStep{c, want} {
		r, err := s.CodeReader(chosen)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		list, residuals, err := r.Read(s.State)
		if err != nil {
			t.Fatal(err)
		}
		codes[i] = fmt.Sprint(list, residuals)
	}
	if codes[0] != codes[1] {
		t.Errorf("codes and residuals are %s, want %s", codes[0], codes[1])
	}
}
