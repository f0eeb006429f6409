package step_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// perReplica is the number of sequences in a micro-batch of each replica. A single replica has the
// same number, and more micro-batches: quantizers of activations then see the same numbers, and
// only the order in which gradients are summed differs. With all sequences in one micro-batch, some
// codes could differ, which a test of few steps would see.
const (
	replicas   = 2
	perReplica = 2
)

// onReplicas returns a step on several replicas.
func onReplicas(
	t *testing.T, count int, d step.Dispatch, accumulate int, overrides []string,
) compiledStep {
	t.Helper()
	all := []string{testrun.TwoLayers, "model.vocab=32", fmt.Sprint("train.batch=", perReplica*count),
		fmt.Sprint("train.accumulate=", accumulate), "train.clip=0.3",
		`device.kind="cuda"`, fmt.Sprint("device.count=", count)}
	cfg := testrun.Config(t, append(all, overrides...)...)
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = d
	c := compileOn(t, testdevice.Open(t, engine.Options{Count: count}), plan)
	s := newState(t, c, testrun.Tokens(1, perReplica*count, cfg.Model.Context+1, vocab)...)
	return compiledStep{c, s}
}

// TestReplicas checks that two replicas train like one, up to rounding, in both dispatches.
func TestReplicas(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	for name, overrides := range map[string][]string{
		"quest, adamw":     {`quantizer={plugin="quest"}`},
		"quest, adamw, 2":  {`quantizer={plugin="quest"}`},
		"lsq, sgd":         {`quantizer={plugin="lsq"}`, `optimizer={plugin="sgd"}`},
		"quest, shampoo":   {`quantizer={plugin="quest"}`, `optimizer={plugin="shampoo"}`},
		"full precision":   {`quantizer={plugin="absmax"}`, `method.gradient="full"`},
		"absmax of tokens": {`quantizer={plugin="absmax", granularity="row"}`},
	} {
		t.Run(name, func(t *testing.T) {
			accumulate := 1
			if strings.HasSuffix(name, ", 2") {
				accumulate = 2
			}
			one := onReplicas(t, 1, step.Single, replicas*accumulate, overrides)
			for _, d := range []step.Dispatch{step.Single, step.Chain} {
				t.Run(string(d), func(t *testing.T) {
					trainAlike(t, one, onReplicas(t, replicas, d, accumulate, overrides))
				})
			}
		})
	}
}

// trainAlike checks that five steps of one and of two agree, from the state of two.
func trainAlike(t *testing.T, one, two compiledStep) {
	t.Helper()
	var err error
	if one.State, err = one.Upload(loaded(testrun.Tensors(t, two.Compiled, two.State))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.State.Close)
	plan := two.Plan()
	for i := range 5 {
		var b [][]int32
		for j := range plan.Accumulate {
			b = append(b, testrun.Tokens(uint64(10*i+j), replicas*perReplica, plan.Context+1, vocab))
		}
		set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i / 3),
			Statistics: true}
		set.Pareto, set.ParetoLambda = i == 2, 2
		if i == 4 {
			b[0][len(b[0])-1] = vocab // NaN on the last replica
		}
		x, y := run(t, one.Compiled, one.State, parts(b, perReplica*(plan.Context+1)), set),
			run(t, two.Compiled, two.State, b, set)
		if x.Skipped != (i == 4) || y.Skipped != x.Skipped {
			t.Fatalf("step %d: skipped %t on one replica, %t on two", i+1, x.Skipped, y.Skipped)
		}
		if i < 4 {
			near(t, fmt.Sprint("loss of step ", i+1), y.Loss, x.Loss, 1e-5)
			near(t, fmt.Sprint("norm of step ", i+1), y.GradNorm, x.GradNorm, 1e-3)
			near(t, fmt.Sprint("measure of step ", i+1), y.Pareto, x.Pareto, 1e-3)
		}
	}
	sameNearly(t, "one and two replicas", testrun.Download(t, one.Compiled, one.State),
		testrun.Download(t, two.Compiled, two.State))
	tokens := testrun.Tokens(7, replicas*perReplica, plan.Context+1, vocab)
	x, y := evaluated(t, one.Compiled, one.State,
		parts([][]int32{tokens}, perReplica*(plan.Context+1))...),
		evaluated(t, two.Compiled, two.State, tokens)
	for i := range x {
		near(t, fmt.Sprint("loss of token ", i), float64(y[i]), float64(x[i]), 1e-3)
	}
}

// parts divides batches into batches of size tokens.
func parts(batches [][]int32, size int) [][]int32 {
	var list [][]int32
	for _, b := range batches {
		list = slices.AppendSeq(list, slices.Chunk(b, size))
	}
	return list
}
