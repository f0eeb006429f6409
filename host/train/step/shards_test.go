package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// shardedOn returns a step on several replicas that shard tensors. Its rows divide into four.
func shardedOn(
	t *testing.T, count int, shard device.Shard, d step.Dispatch, accumulate int, overrides []string,
) compiledStep {
	t.Helper()
	return onReplicas(t, count, d, accumulate,
		append(slices.Clone(overrides), fmt.Sprintf("device.shard=%q", shard)))
}

// TestShards checks that sharding changes only the order of sums, that each replica uses less
// memory, and that fewer replicas can load the state of four. By default each pair of plugins runs
// with the most sharding; CAGE_TESTS=all runs all settings with each.
func TestShards(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	const recompute = `train.recompute="blocks"`
	for _, tt := range []struct {
		name       string
		all        bool // all settings and dispatches, on 2 and 4 replicas
		accumulate int
		overrides  []string
	}{
		{"quest, adamw", true, 1, nil},
		{"quest, adamw, recomputed in two micro-batches", false, 2, []string{recompute}},
		{"quest, muon", false, 1, []string{`optimizer={plugin="muon"}`}},
		{"quest, shampoo", false, 1, []string{`optimizer={plugin="shampoo"}`}},
		{"quest, soap", false, 1, []string{`optimizer={plugin="soap"}`}},
		{"mxfp4, adamw", false, 1, []string{`quantizer={plugin="mxfp4"}`}},
		{"mxfp4, muon", false, 2, []string{`quantizer={plugin="mxfp4"}`, `optimizer={plugin="muon"}`}},
		{"lsq, adamw", false, 1, []string{`quantizer={plugin="lsq"}`}},
		{"lsq, soap", false, 1, []string{`quantizer={plugin="lsq"}`, `optimizer={plugin="soap"}`}},
		{"nvfp4, sgd", false, 1, []string{`quantizer={plugin="nvfp4"}`, `optimizer={plugin="sgd"}`}},
		{"full precision", false, 1,
			[]string{`quantizer={weights={plugin="absmax"}}`, `method.gradient="full"`}},
		{"quest, adamw, averaged", false, 2, []string{`train.average="ema"`}},
		{"coupled", false, 1, []string{`quantizer={plugin="absmax"}`, `method.form="coupled"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			overrides := append([]string{`quantizer={plugin="quest"}`}, tt.overrides...)
			counts, settings, dispatches := []int{4}, []device.Shard{device.ShardFull},
				[]step.Dispatch{step.Single}
			if tt.all || testlevel.All() {
				counts, dispatches = []int{2, 4}, append(dispatches, step.Chain)
				settings = []device.Shard{device.ShardStates, device.ShardGradients, device.ShardFull}
			}
			steps := testlevel.Sample(2, 5, 20)
			for _, count := range counts {
				whole := shardedOn(t, count, device.ShardNone, step.Single, tt.accumulate, overrides)
				var states [][]step.Tensor
				var results []step.Result
				for i := range steps {
					states = append(states, testrun.Tensors(t, whole.Compiled, whole.State))
					results = append(results, shardStep(t, whole, count, i))
				}
				states = append(states, testrun.Tensors(t, whole.Compiled, whole.State))
				for _, shard := range settings {
					for _, d := range dispatches {
						t.Run(fmt.Sprint(count, " ", shard, " ", d), func(t *testing.T) {
							c := shardedOn(t, count, shard, d, tt.accumulate, overrides)
							for i := range steps {
								var err error
								if c.State, err = c.Upload(loaded(states[i])); err != nil {
									t.Fatal(err)
								}
								t.Cleanup(c.State.Close)
								sameStep(t, shardStep(t, c, count, i), results[i])
								most := 1e-5
								if strings.Contains(tt.name, "soap") {
									// for a gradient of low rank, the basis turns rounding into directions of full length
									most = 1e-3
								}
								sameState(t, fmt.Sprint("step ", i+1), testrun.Tensors(t, c.Compiled, c.State), states[i+1],
									most)
							}
							t.Logf("%d bytes of state on each, %d undivided", partBytes(c.State), partBytes(whole.State))
							if partBytes(c.State) >= partBytes(whole.State) {
								t.Error("that is not less")
							}
							if d == step.Single && shard == device.ShardFull {
								goesOn(t, c, overrides)
							}
						})
					}
				}
			}
		})
	}
}

// shardStep runs step i, with measures in the third. Each step starts from the state of the
// unsharded training: sooner or later another order of sums changes a code, and then the trainings
// diverge.
func shardStep(t *testing.T, c compiledStep, count, i int) step.Result {
	t.Helper()
	plan := c.Plan()
	var b [][]int32
	for j := range plan.Accumulate {
		b = append(b, testrun.Tokens(uint64(10*i+j), count*perReplica, plan.Context+1, vocab))
	}
	set := step.Settings{Step: i + 1, Steps: 20, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i / 2),
		Statistics: true}
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

// sameState compares the tensors after one step from the same state: their mean differences must be
// those of rounding. Roots of Shampoo's factors are left out: for a factor without full rank, such
// as that of a gain, they are amplified rounding errors.
func sameState(t *testing.T, what string, got, want []step.Tensor, most float64) {
	t.Helper()
	for i, x := range want {
		if strings.Contains(x.Name, "/root") {
			continue
		}
		difference, size := 0.0, 1e-12
		for j := range x.Data {
			difference += math.Abs(float64(x.Data[j]) - float64(got[i].Data[j]))
			size += math.Abs(float64(x.Data[j]))
		}
		limit := most
		if strings.Contains(x.Name, "quantizer.") {
			limit = 1e-3 // the gradient of a step size is a sum over all elements, most of which cancel
		}
		if !(difference/size < limit) {
			t.Errorf("%s: %s differs by %.2g of its mean absolute value", what, x.Name, difference/size)
		}
	}
}

// partBytes returns the memory of a state on each replica.
func partBytes(s *step.State) (sum int64) {
	for _, b := range s.Tensors {
		sum += b.PartBytes()
	}
	return sum
}

// goesOn checks that the state has the same bits when loaded on fewer replicas, sharded or not.
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
		sameBits(t, fmt.Sprint("a state of 4 replicas on ", other.count),
			testrun.Download(t, c.Compiled, c.State), testrun.Download(t, next.Compiled, s))
	}
}
