package step_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
)

// roundedDescent is descent that rounds parameters to bfloat16.
type roundedDescent struct{ descent }

func (roundedDescent) RoundTo(sdk.Tensor) sdk.Storage { return sdk.StoreBFloat16 }

// TestRounded checks that parameters are bfloat16 numbers after each update, next to the unrounded
// ones, with the same bits after a checkpoint and few differences between dispatches. On average,
// rounding does not change them: steps much smaller than the distance of two numbers are not lost.
func TestRounded(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.1", `method.name="cage"`)
	build := func(o sdk.Optimizer, d step.Dispatch) compiledStep {
		plan := planOf(t, cfg, grid{}, o)
		plan.Dispatch = d
		return started(t, cfg, plan)
	}
	chain, single, again, plain := build(roundedDescent{}, step.Chain),
		build(roundedDescent{}, step.Single), build(roundedDescent{}, step.Chain),
		build(descent{}, step.Chain)
	for i := range 4 {
		set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i / 2)}
		tokens := batches(cfg, uint64(i), 1)
		if i == 2 {
			again.State = throughCheckpoint(t, again.Compiled, again.State)
		}
		var err error
		if plain.State, err = plain.Upload(
			loaded(testrun.Tensors(t, chain.Compiled, chain.State))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(plain.State.Close)
		for _, k := range []compiledStep{chain, single, again, plain} {
			run(t, k.Compiled, k.State, tokens, set)
		}
		got, exact := testrun.Download(t, chain.Compiled, chain.State),
			testrun.Download(t, plain.Compiled, plain.State)
		sameBits(t, "after a checkpoint", got, testrun.Download(t, again.Compiled, again.State))
		sum, squares := 0.0, 0.0
		for name, values := range got {
			for j, v := range values {
				want := exact[name][j]
				distance := math.Ldexp(1, max(math.Ilogb(float64(want)), -126)-7)
				if float64(v) != sdk.StoreBFloat16.Round(float64(v)) ||
					math.Abs(float64(v)-float64(want)) >= distance {
					t.Fatalf("step %d: element %d of %s is %v, next to %v", i+1, j, name, v, want)
				}
				if strings.HasPrefix(name, "param/") {
					d := (float64(v) - float64(want)) / distance
					sum, squares = sum+d, squares+1
				}
			}
		}
		// The standard deviation of a rounding is at most half of the distance.
		if math.Abs(sum) > 4*0.5*math.Sqrt(squares) {
			t.Errorf("step %d: the mean change by rounding is %v distances, of %v elements", i+1,
				sum/squares, squares)
		}
	}
	differ, all := 0, 0
	other := testrun.Download(t, single.Compiled, single.State)
	for name, values := range testrun.Download(t, chain.Compiled, chain.State) {
		for j, v := range values {
			if all++; v != other[name][j] {
				differ++
			}
		}
	}
	if differ > all/100 { // where intermediate results of the dispatches are rounded differently
		t.Errorf("%d of %d elements differ between dispatches", differ, all)
	}
}
