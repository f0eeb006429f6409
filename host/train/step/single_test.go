package step_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// dispatched returns the step of a configuration under the given dispatch.
func dispatched(t *testing.T, cfg *config.Config, d step.Dispatch) compiledStep {
	t.Helper()
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = d
	k := inGraphs(t, cfg, plan)
	if err := k.Prepare(false); err != nil {
		t.Fatal(err)
	}
	return k
}

// singleCases are the cases of TestSingle, as overrides of the configuration.
var singleCases = map[string][]string{
	"quest, adamw":     {`quantizer={plugin="quest"}`},
	"quest, adamw, 3":  {`quantizer={plugin="quest"}`, three},
	"absmax, adamw, 3": {`quantizer={plugin="absmax"}`, `method.form="coupled"`, three},
	"quest, sgd": {`quantizer={plugin="quest"}`, `optimizer={plugin="sgd"}`,
		`method.form="coupled"`},
	"absmax, sgd, 3": {`quantizer={plugin="absmax"}`, `optimizer={plugin="sgd"}`, three},
	"quest, muon, 3": {`quantizer={plugin="quest"}`, `optimizer={plugin="muon"}`,
		`method.variant="official"`, three},
	"absmax, muon, off": {`quantizer={plugin="absmax"}`, `optimizer={plugin="muon"}`,
		`method.form="off"`},
	"lsq, adamw":     {`quantizer={plugin="lsq"}`},
	"lsq, adamw, 3":  {`quantizer={plugin="lsq"}`, three},
	"full precision": {`quantizer={plugin="quest"}`, `method.gradient="full"`, three},
	"no quantizer":   {`optimizer={plugin="sgd"}`, three},
	"refreshes": {`quantizer={plugin="quest"}`, `optimizer={plugin="shampoo"}`,
		"train.accumulate=2"},
	"late refreshes": {`quantizer={plugin="quest"}`, `optimizer={plugin="soap", refresh_delay=2}`},
	"oscireset": {`method={name="oscireset", reset_start=0.0, reset_every=4, reset_window=2}`,
		`quantizer={plugin="quest"}`},
	"winq": {`method={name="winq", mix_every=3, noise=0.01}`, `quantizer={plugin="absmax"}`},
	"parq": {`method={name="parq", anneal_start=0.2}`, `quantizer={plugin="mxfp4"}`,
		three},
	"lotion": {`method={name="lotion"}`, `quantizer={weights={plugin="quest"}}`,
		"train.accumulate=2"},
}

const three = "train.accumulate=3"

// TestSingle checks that a step as one executable equals the chain, with clipping, statistics, the
// start of the correction, a loss that is not finite and a step that must run as the chain. On the
// CPU the bits are the same.
func TestSingle(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	const clip, bad, pareto = 0.3, 6, 8
	first, last, same := 0, 12, sameBits
	if testdevice.Kind() != device.CPU { // compiling takes long there, and codes may differ
		first, last, same = 5, 10, sameNearly
	}
	for name, overrides := range singleCases {
		t.Run(name, func(t *testing.T) {
			if testdevice.Kind() != device.CPU && name != "quest, adamw, 3" && name != "lsq, adamw" {
				t.Skip("the others are compared on the CPU")
			}
			cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32",
				fmt.Sprint("train.clip=", clip))...)
			a, b := dispatched(t, cfg, step.Chain), dispatched(t, cfg, step.Single)
			clipped := 0
			for i := first; i < last; i++ {
				set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 2e-3, Lambda: float64(i / 4),
					Statistics: i%4 == 1, ParetoLambda: 2}
				set.ParetoSTE = i == pareto && cfg.Method.Gradient != "full"
				tokens := batches(cfg, 10*uint64(i), cfg.Train.Accumulate)
				if i == bad {
					tokens[len(tokens)-1][3] = vocab
				}
				if i%5 == 1 { // also while a refresh is pending
					b.State = throughCheckpoint(t, b.Compiled, b.State)
				}
				before := testrun.Download(t, b.Compiled, b.State)
				x, y := run(t, a.Compiled, a.State, tokens, set), run(t, b.Compiled, b.State, tokens, set)
				if i == bad {
					sameBits(t, "the skipped step", before, testrun.Download(t, b.Compiled, b.State))
				}
				if x.Skipped != (i == bad) {
					t.Fatalf("step %d: %+v", i+1, x)
				}
				sameOutcome(t, i+1, x, y)
				if x.GradNorm > clip {
					clipped++
				}
				if i == last-1 {
					same(t, fmt.Sprint("after step ", i+1), testrun.Download(t, a.Compiled, a.State),
						testrun.Download(t, b.Compiled, b.State))
				}
			}
			if clipped < 2 {
				t.Errorf("%d steps were clipped, want more", clipped)
			}
		})
	}
}

// sameOutcome compares the results of two steps, bit by bit on the CPU.
func sameOutcome(t *testing.T, at int, x, y step.Result) {
	t.Helper()
	x.Overhead, y.Overhead = 0, 0
	if testdevice.Kind() == device.CPU {
		if diff := cmp.Diff(fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y)); diff != "" {
			t.Fatalf("step %d: -chain +single:\n%s", at, diff)
		}
		return
	}
	if x.Skipped && y.Skipped {
		return // the loss is NaN
	}
	near(t, fmt.Sprint("loss of step ", at), y.Loss, x.Loss, 1e-5)
	near(t, fmt.Sprint("norm of step ", at), y.GradNorm, x.GradNorm, 1e-3)
}

// sameNearly compares states with different rounding. It compares means, because single codes may
// differ.
func sameNearly(t testing.TB, what string, a, b map[string][]float32) {
	t.Helper()
	most := 0.0
	for name, x := range a {
		y, difference, size := b[name], 0.0, 1e-12
		for i := range x {
			difference += math.Abs(float64(x[i]) - float64(y[i]))
			size += math.Abs(float64(x[i]))
		}
		most = max(most, difference/size)
		if !(difference/size < 1e-3) {
			t.Errorf("%s: %s differs by %.2g of its mean absolute value", what, name, difference/size)
		}
	}
	t.Logf("%s: mean differences of up to %.2g of the mean absolute value", what, most)
}

// TestSingleInChunks checks that micro-batches that compute their loss in chunks of tokens give the
// same step as micro-batches that compute it at once.
func TestSingleInChunks(t *testing.T) {
	cfg := sgdConfig(t, three)
	var results [2]step.Result
	for i, tokens := range []int{1 << 20, 16} {
		plan := planOf(t, cfg, squash{}, descent{})
		var err error
		if plan.Model, err = model.New(cfg.Model, model.Options{LossTokens: tokens}); err != nil {
			t.Fatal(err)
		}
		plan.Dispatch = step.Single
		c := compileOn(t, testdevice.Open(t, engine.Options{Precision: device.BFloat16}), plan)
		results[i] = run(t, c, newState(t, c), batches(cfg, 7, 3), step.Settings{Step: 1})
	}
	for what, values := range map[string][2]float64{"loss": {results[0].Loss, results[1].Loss},
		"norm": {results[0].GradNorm, results[1].GradNorm}} {
		if apart := math.Abs(values[1]/values[0] - 1); !(apart < 1e-5) {
			t.Errorf("%s: %g in chunks, %g at once", what, values[1], values[0])
		}
	}
}

// TestPrepared checks that nothing is compiled after Prepare: not for steps without or with
// correction, late refreshes, statistics, stationarity measures or evaluations.
func TestPrepared(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		for name, overrides := range map[string][]string{
			"soap, late": {`optimizer={plugin="soap", refresh_delay=2}`, "train.accumulate=2"},
			"shampoo":    {`optimizer={plugin="shampoo"}`, `quantizer={plugin="lsq"}`},
			"full":       {`method.gradient="full"`, "train.accumulate=2"},
		} {
			t.Run(string(dispatch)+"/"+name, func(t *testing.T) {
				cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32")...)
				plan := testrun.Plan(t, cfg)
				plan.Dispatch = dispatch
				k := started(t, cfg, plan)
				if err := k.Prepare(true); err != nil {
					t.Fatal(err)
				}
				before := testrun.Device(t).Compiled()
				for i := range 14 {
					set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i % 2),
						Statistics: i%3 == 0, ParetoLambda: 1}
					set.Pareto = i%4 == 0
					set.ParetoSTE = set.Pareto && !plan.FullPrecision
					run(t, k.Compiled, k.State, batches(cfg, uint64(i), cfg.Train.Accumulate), set)
				}
				evaluated(t, k.Compiled, k.State, batches(cfg, 1, 1)[0])
				if n := testrun.Device(t).Compiled() - before; n != 0 {
					t.Errorf("%d executables were compiled after Prepare", n)
				}
			})
		}
	}
}
