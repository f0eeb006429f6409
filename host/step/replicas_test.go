package step_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/step"
)

// onReplicas is a step on several replicas, which share the batch of 4 of the
// configuration.
func onReplicas(t *testing.T, count int, d step.Dispatch, overrides []string) compiledStep {
	t.Helper()
	device := testdevice.Open(t, engine.Options{Count: count})
	all := []string{"model.vocab=32", "train.batch=4", "train.clip=0.3", `device.kind="cuda"`, fmt.Sprint("device.count=", count)}
	cfg := testrun.Config(t, append(all, overrides...)...)
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = d
	c, err := step.Compile(device, plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s, err := c.NewState(3, testrun.Tokens(1, 4, cfg.Model.Context+1, vocab))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return compiledStep{c, s}
}

// TestReplicas: two replicas train as one does, but for rounding, in both dispatches.
func TestReplicas(t *testing.T) {
	if testdevice.Kind() == engine.CPU {
		t.Skip("the CPU is one replica")
	}
	for name, overrides := range map[string][]string{
		"quest, adamw":     {`quantizer={plugin="quest"}`},
		"quest, adamw, 2":  {`quantizer={plugin="quest"}`, "train.accumulate=2"},
		"lsq, sgd":         {`quantizer={plugin="lsq"}`, `optimizer={plugin="sgd"}`},
		"quest, shampoo":   {`quantizer={plugin="quest"}`, `optimizer={plugin="shampoo"}`},
		"full precision":   {`quantizer={plugin="absmax"}`, `method.gradient="full"`},
		"absmax of tokens": {`quantizer={plugin="absmax", granularity="row"}`},
	} {
		t.Run(name, func(t *testing.T) {
			one := onReplicas(t, 1, step.Single, overrides)
			for _, d := range []step.Dispatch{step.Single, step.Chain} {
				t.Run(string(d), func(t *testing.T) { trainAlike(t, one, onReplicas(t, 2, d, overrides)) })
			}
		})
	}
}

// trainAlike runs five steps on a copy of the first step's state and on the second's.
func trainAlike(t *testing.T, one, two compiledStep) {
	t.Helper()
	one.State = copied(t, one)
	plan := one.Plan()
	for i := range 5 {
		var b [][]int32
		for j := range plan.Accumulate {
			b = append(b, testrun.Tokens(uint64(10*i+j), 4, plan.Context+1, vocab))
		}
		set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i / 3), Statistics: true}
		set.Pareto, set.ParetoLambda = i == 2, 2
		if i == 4 {
			b[0][len(b[0])-1] = vocab // NaN on the last replica
		}
		x, y := run(t, one.Compiled, one.State, b, set), run(t, two.Compiled, two.State, b, set)
		if x.Skipped != (i == 4) || y.Skipped != x.Skipped {
			t.Fatalf("step %d: skipped %t on one replica, %t on two", i+1, x.Skipped, y.Skipped)
		}
		if i < 4 {
			near(t, fmt.Sprint("loss of step ", i+1), y.Loss, x.Loss, 1e-5)
			near(t, fmt.Sprint("norm of step ", i+1), y.GradNorm, x.GradNorm, 1e-3)
			near(t, fmt.Sprint("measure of step ", i+1), y.Pareto, x.Pareto, 1e-3)
		}
	}
	sameNearly(t, "one and two replicas", testrun.Download(t, one.Compiled, one.State), testrun.Download(t, two.Compiled, two.State))
	x, y := evaluated(t, one), evaluated(t, two)
	for i := range x {
		near(t, fmt.Sprint("loss of token ", i), float64(y[i]), float64(x[i]), 1e-3)
	}
}

// copied is a copy of the state.
func copied(t *testing.T, k compiledStep) *step.State {
	t.Helper()
	tensors := testrun.Tensors(t, k.Compiled, k.State)
	s, err := k.Upload(func(name string) (step.Tensor, error) {
		return tensors[slices.IndexFunc(tensors, func(x step.Tensor) bool { return x.Name == name })], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// evaluated are the losses of the tokens of a batch.
func evaluated(t *testing.T, k compiledStep) []float32 {
	t.Helper()
	e, err := k.Evaluator(k.State)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	losses, err := e.Losses(testrun.Tokens(7, 4, k.Plan().Context+1, vocab))
	if err != nil {
		t.Fatal(err)
	}
	return losses
}
