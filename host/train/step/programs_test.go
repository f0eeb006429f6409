package step_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// TestSingleProgram checks what XLA gets for a step on two GPUs: one program, which updates
// parameters and states in place and sums gradients across the GPUs once, and besides only the
// uploads of tokens and scalars.
func TestSingleProgram(t *testing.T) {
	for _, accumulate := range []int{1, 2} {
		t.Run(fmt.Sprint("accumulate ", accumulate), func(t *testing.T) {
			dev, r, err := pjrtrecord.Open(t, 2, engine.Options{Count: 2})
			if err != nil {
				t.Fatal(err)
			}
			cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.batch=4",
				fmt.Sprint("train.accumulate=", accumulate),
				`quantizer={plugin="lsq"}`, `device={kind="cuda", count=2}`)
			c := compileOn(t, dev, testrun.Plan(t, cfg))
			if err := c.Prepare(false); err != nil {
				t.Fatal(err)
			}
			programs := r.Programs(t)
			if len(programs) != 4 { // the step without correction and with it, quantize, and the losses
				t.Fatalf("%d programs were compiled before the first step, want 4", len(programs))
			}
			for _, p := range programs[:2] {
				checkSingle(t, c.Plan(), p)
			}
			checkRuns(t, c, r, cfg.Model.Context)
		})
	}
}

// checkSingle checks a program of two replicas.
func checkSingle(t *testing.T, plan *step.Plan, program string) {
	t.Helper()
	replaced := 0
	for _, rule := range plan.Rules {
		replaced += 1 + len(rule.State())
	}
	head, _, _ := strings.Cut(program[strings.Index(program, "@main"):], "->")
	for i, argument := range strings.Split(head, "%")[1:] {
		in := strings.Contains(argument, fmt.Sprintf("tf.aliasing_output = %d ", i))
		if in != (i < replaced) {
			t.Errorf("argument %d of %d that are replaced: %s", i, replaced, argument)
		}
	}
	// One for the losses, and one for the gradient of each tensor that the forward pass reads:
	// gradients of the step sizes of weight quantizers follow from those of the weights.
	want := 1 + len(plan.Model.Params()) + len(plan.Activations)
	if got := strings.Count(program, `"stablehlo.all_reduce"`); got != want {
		t.Errorf("%d sums across replicas, want %d", got, want)
	}
	if got, want := strings.Count(program, `"stablehlo.while"`), min(1,
		plan.Accumulate-1); got != want {
		t.Errorf("%d loops, want %d", got, want)
	}
	for _, never := range []string{"stablehlo.custom_call", "stablehlo.infeed", "stablehlo.outfeed",
		"stablehlo.send"} {
		if strings.Contains(program, never) {
			t.Errorf("the program has %s", never)
		}
	}
}

// checkRuns runs steps and checks the calls of the device.
func checkRuns(t *testing.T, c *step.Compiled, r *pjrtrecord.Recorder, context int) {
	t.Helper()
	var tokens [][]int32
	for i := range c.Plan().Accumulate {
		tokens = append(tokens, testrun.Tokens(uint64(i), 4, context+1, vocab))
	}
	s := newState(t, c, tokens[0]...)
	before := len(r.Log(t))
	const steps = 3
	for i := range steps {
		run(t, c, s, tokens, step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Statistics: i == 1})
	}
	var kinds []string
	for _, line := range r.Log(t)[before:] {
		kind, _, _ := strings.Cut(line, " ")
		kinds = append(kinds, kind)
	}
	one := "upload upload upload upload run" // tokens and scalars, to two replicas
	if got, want := strings.Join(kinds, " "), strings.TrimSpace(
		strings.Repeat(one+" ", steps)); got != want {
		t.Errorf("the steps are %s, want %s", got, want)
	}
}

// TestShardedPrograms checks what four GPUs exchange: with sharding, the gradient of each matrix is
// scattered, and no matrix is summed on all GPUs.
func TestShardedPrograms(t *testing.T) {
	// embedding, head, and five weights in each of two layers
	const matrices = 2 + 2*5
	for shard, want := range map[device.Shard]struct{ scattered, sums int }{
		device.ShardNone:      {0, matrices},
		device.ShardStates:    {matrices, 0},
		device.ShardGradients: {matrices, 0},
		device.ShardFull:      {matrices, 0},
	} {
		t.Run(string(shard), func(t *testing.T) {
			dev, r, err := pjrtrecord.Open(t, 4, engine.Options{Count: 4})
			if err != nil {
				t.Fatal(err)
			}
			cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.batch=4",
				`quantizer={plugin="quest"}`, fmt.Sprintf(`device={kind="cuda", count=4, shard=%q}`, shard))
			c := compileOn(t, dev, testrun.Plan(t, cfg))
			if err := c.Prepare(false); err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Programs(t)[:2] {
				scattered := strings.Count(p, `"stablehlo.reduce_scatter"`)
				sums := summedMatrices(p)
				if scattered != want.scattered || sums != want.sums {
					t.Errorf("%d gradients are scattered and %d matrices are summed on all, want %d and %d",
						scattered, sums, want.scattered, want.sums)
				}
			}
		})
	}
}

// summedMatrices counts the sums over all GPUs whose results are matrices.
func summedMatrices(program string) (n int) {
	for _, after := range strings.Split(program, `"stablehlo.all_reduce"`)[1:] {
		_, after, _ = strings.Cut(after, "})") // after the function that adds
		_, types, _ := strings.Cut(after, " : (tensor<")
		shape, _, _ := strings.Cut(types, ">")
		if strings.Count(shape, "x") > 1 {
			n++
		}
	}
	return n
}
