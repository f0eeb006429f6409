package step_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// shardSteps is the number of steps over which trainings with and without divided tensors are compared. Each step begins with the state of
// the undivided training: sums in another order put a code on the other side of a boundary sooner or later, and what follows is another
// training.
const shardSteps = 20

// shardedOn is a step on several replicas that divide tensors. Its rows divide into four.
func shardedOn(t *testing.T, count int, shard device.Shard, d step.Dispatch, accumulate int, overrides []string) compiledStep {
	t.Helper()
	return onReplicas(t, count, d, accumulate, append(slices.Clone(overrides), fmt.Sprintf("device.shard=%q", shard)))
}

// TestShards: what replicas divide among them changes nothing but the order of sums; each setting takes less memory than the one before
// it; and any number of replicas goes on from the state of four.
func TestShards(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	for name, overrides := range map[string][]string{
		"quest, adamw":          {`quantizer={plugin="quest"}`},
		"quest, adamw, 2":       {`quantizer={plugin="quest"}`},
		"quest, adamw, again":   {`quantizer={plugin="quest"}`, `train.recompute="blocks"`},
		"quest, adamw, again 2": {`quantizer={plugin="quest"}`, `train.recompute="blocks"`},
		"quest, muon":           {`quantizer={plugin="quest"}`, `optimizer={plugin="muon", others={plugin="adamw"}}`},
		"quest, shampoo":        {`quantizer={plugin="quest"}`, `optimizer={plugin="shampoo"}`},
		"quest, soap":           {`quantizer={plugin="quest"}`, `optimizer={plugin="soap"}`},
		"mxfp4, adamw":          {`quantizer={plugin="mxfp4"}`},
		"lsq, adamw":            {`quantizer={plugin="lsq"}`},
		"nvfp4, sgd":            {`quantizer={plugin="nvfp4"}`, `optimizer={plugin="sgd"}`},
		"full precision":        {`quantizer={weights={plugin="absmax"}}`, `method.gradient="full"`},
		"coupled":               {`quantizer={plugin="absmax"}`, `method.mode="coupled"`},
	} {
		t.Run(name, func(t *testing.T) {
			accumulate := 1
			if name[len(name)-1] == '2' {
				accumulate = 2
			}
			for _, count := range []int{2, 4} {
				whole := shardedOn(t, count, device.ShardNone, step.Single, accumulate, overrides)
				var states [][]step.Tensor
				var results []step.Result
				for i := range shardSteps {
					states = append(states, testrun.Tensors(t, whole.Compiled, whole.State))
					results = append(results, shardStep(t, whole, count, i))
				}
				states = append(states, testrun.Tensors(t, whole.Compiled, whole.State))
				before := partBytes(whole.State)
				for _, shard := range []device.Shard{device.ShardStates, device.ShardGradients, device.ShardFull} {
					for d, steps := range map[step.Dispatch]int{step.Single: shardSteps, step.Chain: 3} {
						t.Run(fmt.Sprint(count, " ", shard, " ", d), func(t *testing.T) {
							c := shardedOn(t, count, shard, d, accumulate, overrides)
							for i := range steps {
								again := compiledStep{c.Compiled, nil}
								var err error
								if again.State, err = c.Upload(loaded(states[i])); err != nil {
									t.Fatal(err)
								}
								sameStep(t, shardStep(t, again, count, i), results[i])
								sameState(t, fmt.Sprint("step ", i+1), testrun.Tensors(t, c.Compiled, again.State), states[i+1])
								if i == steps-1 {
									bytes := partBytes(again.State)
									t.Logf("%d bytes of state on each, %d undivided", bytes, before)
									if bytes >= before {
										t.Errorf("%d bytes of state on each, %d undivided", bytes, before)
									}
									if count == 4 && d == step.Single {
										goesOn(t, again, overrides)
									}
								}
								again.State.Close()
							}
						})
					}
				}
			}
		})
	}
}

// shardStep runs step i, with measures in the third.
func shardStep(t *testing.T, c compiledStep, count, i int) step.Result {
	t.Helper()
	plan := c.Plan()
	var b [][]int32
	for j := range plan.Accumulate {
		b = append(b, testrun.Tokens(uint64(10*i+j), count*perReplica, plan.Context+1, vocab))
	}
	set := step.Settings{Step: i + 1, Steps: shardSteps, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i / 5), Statistics: true}
	set.Pareto, set.ParetoLambda = i == 2, 2
	return run(t, c.Compiled, c.State, b, set)
}

func sameStep(t *testing.T, got, want step.Result) {
	t.Helper()
	near(t, "loss", got.Loss, want.Loss, 1e-6)
	near(t, "norm", got.GradNorm, want.GradNorm, 1e-5)
	near(t, "measure", got.Pareto, want.Pareto, 1e-5)
	for i := range want.ErrorNorm2 {
		near(t, fmt.Sprint("error of weight ", i), got.ErrorNorm2[i], want.ErrorNorm2[i], 1e-4)
	}
}

// sameState compares the tensors after one step from the same state: their mean differences are those of rounding.
func sameState(t *testing.T, what string, got, want []step.Tensor) {
	t.Helper()
	for i, x := range want {
		difference, size := 0.0, 1e-12
		for j := range x.Data {
			difference += math.Abs(float64(x.Data[j]) - float64(got[i].Data[j]))
			size += math.Abs(float64(x.Data[j]))
		}
		if !(difference/size < 1e-5) {
			t.Errorf("%s: %s differs by %.2g of its mean absolute value", what, x.Name, difference/size)
		}
	}
}

// partBytes is the memory that a state takes on each replica.
func partBytes(s *step.State) (sum int64) {
	for _, b := range s.Tensors {
		sum += b.PartBytes()
	}
	return sum
}

// goesOn loads the state on fewer replicas, divided and not: all bits are the same.
func goesOn(t *testing.T, c compiledStep, overrides []string) {
	t.Helper()
	state := testrun.Tensors(t, c.Compiled, c.State)
	for _, other := range []struct {
		count int
		shard device.Shard
	}{{1, device.ShardNone}, {2, device.ShardFull}, {2, device.ShardStates}} {
		next := shardedOn(t, other.count, other.shard, step.Single, 1, overrides)
		s, err := next.Upload(loaded(state))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		sameBits(t, fmt.Sprint("a state of 4 replicas on ", other.count), testrun.Download(t, c.Compiled, c.State), testrun.Download(t, next.Compiled, s))
	}
}
