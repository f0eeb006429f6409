package step_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// teach returns the plan with distillation from a teacher of the same architecture.
func teach(plan step.Plan, d network.Distillation) step.Plan {
	plan.Distillation = &step.Distillation{Distillation: d, Teacher: plan.Model.(model.Language)}
	return plan
}

var jensenShannon = network.Distillation{Beta: 0.5, Temperature: 1, Weight: 1}

// drawn returns a function that loads parameters drawn from a seed.
func drawn(m model.Model, seed uint64) step.LoadFunc {
	params := map[string]architecture.Param{}
	for _, p := range m.Params() {
		params[p.Name] = p
	}
	return step.LoadParams(m,
		func(name string) ([]float32, error) { return params[name].Init(seed), nil })
}

// taught returns a step with a teacher whose parameters are drawn from the seed.
func taught(t *testing.T, cfg *config.Config, plan step.Plan, seed uint64) compiledStep {
	t.Helper()
	k := inGraphs(t, cfg, plan)
	if err := k.LoadTeacher(drawn(plan.Model, seed)); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestOwnTeacher checks that a teacher with the same parameters gives no gradient, unless the model
// is quantized. The result contains the divergence and the cross-entropy, which is the loss of a
// training without a teacher.
func TestOwnTeacher(t *testing.T) {
	for name, quantizer := range map[string]string{"none": `quantizer.plugin="none"`,
		"quest": `quantizer.plugin="quest"`} {
		t.Run(name, func(t *testing.T) {
			cfg := sgdConfig(t, quantizer, `method.form="off"`, "train.accumulate=2")
			plan := testrun.Plan(t, cfg)
			k := taught(t, cfg, teach(plan, jensenShannon), 3) // also the seed of the state
			before := testrun.Download(t, k.Compiled, k.State)
			b := batches(cfg, 5, 2)
			set := step.Settings{Step: 1, Rate: 0.5, NextRate: 0.5}
			res := run(t, k.Compiled, k.State, b, set)
			alone := started(t, cfg, plan)
			want := run(t, alone.Compiled, alone.State, b, set)
			near(t, "the cross-entropy", res.CrossEntropy, want.Loss, 1e-6)
			if res.Loss != res.Divergence || want.Divergence != 0 || want.CrossEntropy != 0 {
				t.Errorf("with a teacher %+v, without %+v", res, want)
			}
			if name == "none" {
				if res.Divergence != 0 || res.GradNorm != 0 {
					t.Errorf("the divergence from itself is %v, the norm of its gradient %v", res.Divergence,
						res.GradNorm)
				}
				sameBits(t, "after a step", before, testrun.Download(t, k.Compiled, k.State))
			} else if !(res.Divergence > 0 && res.Divergence < 0.1 && res.GradNorm > 0) {
				t.Errorf("quantized: %+v", res)
			}
		})
	}
}

// TestDistillationMix checks that the gradient of a mixed loss is the weighted sum of the gradients
// of its parts; that of cross-entropy is taken from a training without a teacher.
func TestDistillationMix(t *testing.T) {
	cfg := sgdConfig(t, `quantizer.plugin="none"`, "train.accumulate=2")
	plan := testrun.Plan(t, cfg)
	b := batches(cfg, 5, 2)
	part := func(weight float64) [][]float64 {
		d := jensenShannon
		d.Weight = weight
		c := testrun.Compile(t, teach(plan, d))
		if err := c.LoadTeacher(drawn(plan.Model, 9)); err != nil {
			t.Fatal(err)
		}
		return gradients(t, c, b)
	}
	whole, mixed, tokens := part(1), part(0.25), gradients(t, testrun.Compile(t, plan), b)
	for i, p := range plan.Model.Params() {
		apart := make([]float64, len(mixed[i]))
		for j := range apart {
			apart[j] = mixed[i][j] - 0.25*whole[i][j] - 0.75*tokens[i][j]
		}
		// Gradients are differences of parameters of up to 1: each has an error of about 2⁻²⁴.
		if !(norm2(apart) <= 1e-14*float64(len(apart))) {
			t.Errorf("%s: the gradient of the mixture is %.3g from that of its parts, of %.3g", p.Name,
				norm2(apart), norm2(mixed[i]))
		}
	}
}

// TestDistilledSingle checks that, with a teacher, a step as one executable has the same bits as
// the chain, also if steps must run as the chain, with a gradient at x, and with recomputed blocks.
// The state does not include the teacher.
func TestDistilledSingle(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	if testdevice.Kind() != device.CPU {
		t.Skip("the bits are those of the CPU")
	}
	for name, overrides := range map[string][]string{
		"quest, adamw": {`quantizer={plugin="quest"}`, three},
		"lsq, sgd":     {`quantizer={plugin="lsq"}`, `optimizer={plugin="sgd"}`},
		"shampoo": {`quantizer={plugin="mxfp4"}`, `optimizer={plugin="shampoo"}`,
			"train.accumulate=2"},
		"full precision": {`quantizer={plugin="absmax"}`, `method.gradient="full"`},
		"lotion": {`method={name="lotion"}`, `quantizer={weights={plugin="quest"}}`,
			"train.accumulate=2"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32",
				"train.clip=0.3")...)
			again := testrun.Again(t, cfg, `train.recompute="blocks"`)
			var steps []compiledStep
			for _, how := range []struct {
				cfg      *config.Config
				dispatch step.Dispatch
			}{{cfg, step.Chain}, {cfg, step.Single}, {again, step.Chain}} {
				plan := testrun.Plan(t, how.cfg)
				plan.Dispatch = how.dispatch
				d := jensenShannon
				d.Weight = 0.75
				steps = append(steps, taught(t, cfg, teach(plan, d), 11))
			}
			for i := range 6 {
				tokens := batches(cfg, 10*uint64(i), cfg.Train.Accumulate)
				set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 2e-3, Lambda: float64(i / 3),
					Statistics: i == 2, Pareto: i == 4, ParetoLambda: 2}
				first := run(t, steps[0].Compiled, steps[0].State, tokens, set)
				for _, other := range steps[1:] {
					sameOutcome(t, i+1, first, run(t, other.Compiled, other.State, tokens, set))
				}
			}
			want := testrun.Download(t, steps[0].Compiled, steps[0].State)
			for _, other := range steps[1:] {
				sameBits(t, "after the steps", want, testrun.Download(t, other.Compiled, other.State))
			}
			for tensor := range want {
				if strings.HasPrefix(tensor, "teacher/") {
					t.Errorf("the state has %s", tensor)
				}
			}
		})
	}
}

// TestDistilledMicroBatches checks that two micro-batches give the same losses and gradient norm as
// a single one with the same sequences.
func TestDistilledMicroBatches(t *testing.T) {
	results := map[int]step.Result{}
	for _, accumulate := range []int{1, 2} {
		cfg := sgdConfig(t, `quantizer.plugin="none"`, fmt.Sprint("train.accumulate=", accumulate),
			fmt.Sprint("train.batch=", 4/accumulate))
		k := taught(t, cfg, teach(testrun.Plan(t, cfg), jensenShannon), 9)
		all := testrun.Tokens(7, 4, cfg.Model.Context+1, vocab)
		var b [][]int32
		for i := range accumulate {
			b = append(b, all[i*len(all)/accumulate:(i+1)*len(all)/accumulate])
		}
		results[accumulate] = run(t, k.Compiled, k.State, b, step.Settings{Step: 1, Rate: 0.5})
	}
	near(t, "the divergence", results[2].Divergence, results[1].Divergence, 1e-5)
	near(t, "the cross-entropy", results[2].CrossEntropy, results[1].CrossEntropy, 1e-5)
	near(t, "the norm", results[2].GradNorm, results[1].GradNorm, 1e-4)
}

// TestTeacherIsMissing checks the errors for a teacher without parameters, for parameters of
// another model, and for a teacher of a model without tokens.
func TestTeacherIsMissing(t *testing.T) {
	cfg := sgdConfig(t)
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		plan := teach(testrun.Plan(t, cfg), jensenShannon)
		plan.Dispatch = dispatch
		k := started(t, cfg, plan)
		before := testrun.Download(t, k.Compiled, k.State)
		if _, err := k.Step(k.State, batches(cfg, 1, 1), step.Settings{Step: 1, Rate: 1}); err == nil ||
			!strings.Contains(err.Error(), "the teacher's parameters are not loaded") {
			t.Errorf("%s: error %v", dispatch, err)
		}
		sameBits(t, "after the error", before, testrun.Download(t, k.Compiled, k.State))
		other, err := model.New(architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Heads: 2,
			Width: 16, Hidden: 48, Vocab: vocab}, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.LoadTeacher(drawn(other, 1)); err == nil ||
			!strings.Contains(err.Error(), "param/embedding has shape [32 16], the run needs [32 32]") {
			t.Errorf("%s: error %v", dispatch, err)
		}
	}
	plan := testrun.Plan(t, cfg)
	language := plan.Model.(model.Language)
	var err error
	if plan.Model, err = model.New(architecture.Settings{Kind: architecture.KindToy},
		model.Options{}); err != nil {
		t.Fatal(err)
	}
	plan.Weights, plan.Activations, plan.Rules = nil, nil, nil
	plan.Distillation = &step.Distillation{Distillation: jensenShannon, Teacher: language}
	if _, err := step.Compile(testrun.Device(t), plan); err == nil {
		t.Error("a problem without tokens has a teacher")
	}
}
