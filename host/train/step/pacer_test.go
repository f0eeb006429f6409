package step_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// told is an optimizer that uses all inputs of a step, collects sums and computes its own rate.
type told struct{ descent }

func (told) Collect(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"norm2": in.Gradient.Square().SumAll(), "size2": in.X.Square().SumAll().
		Mul(in.Loss)}, nil
}

func (told) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...)}, nil
}

func (told) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(0.9).Add(in.Gradient.Div(in.Global["norm2"].Sqrt().Shift(1e-3)))
	return m.Mul(in.Loss.Add(in.Step.Div(in.Steps))), sdk.State{"m": m}, nil
}

func (told) Rate(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return in.Rate.Mul(in.X.Square().SumAll().Div(in.Global["size2"]).Sqrt()).Mul(in.Loss), nil
}

// TestTold checks that optimizers get the same inputs in a chain and in one executable, and nearly
// the same results in tiles, also after a checkpoint.
func TestTold(t *testing.T) {
	for i, overrides := range [][]string{
		{"train.clip=0.5", "train.weight_decay=0.1"}, {"train.accumulate=3", `method.variant="official"`},
		{"train.accumulate=2", `method.form="coupled"`},
	} {
		if testing.Short() && i != 1 {
			continue
		}
		cfg := sgdConfig(t, overrides...)
		var ways [3]compiledStep
		for i, d := range []step.Dispatch{step.Chain, step.Single, step.Chain} {
			plan := planOf(t, cfg, grid{}, told{})
			plan.Dispatch = d
			if i < 2 {
				ways[i] = inGraphs(t, cfg, plan)
			} else { // by plans, which sum in another order
				ways[i] = started(t, cfg, plan)
			}
		}
		for i := range 6 {
			set := step.Settings{Step: i + 1, Steps: 6, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i / 3)}
			tokens := batches(cfg, uint64(i), cfg.Train.Accumulate)
			var results [3]step.Result
			for j, k := range ways {
				if i == 3 {
					ways[j].State = throughCheckpoint(t, k.Compiled, k.State)
				}
				results[j] = run(t, ways[j].Compiled, ways[j].State, tokens, set)
			}
			sameOutcome(t, i+1, results[0], results[1])
			if n := len(ways[0].Plan().Rules); len(results[2].Rates) != n {
				t.Errorf("%d rates of %d tensors", len(results[2].Rates), n)
			}
		}
		chain := testrun.Download(t, ways[0].Compiled, ways[0].State)
		sameBits(t, fmt.Sprint(overrides), chain, testrun.Download(t, ways[1].Compiled, ways[1].State))
		sameNearly(t, fmt.Sprint(overrides), chain, testrun.Download(t, ways[2].Compiled, ways[2].State))
	}
}
