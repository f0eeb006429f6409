package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

// keptSamples is descent that keeps the gradient with drawn labels, at x, every third update.
type keptSamples struct{ descent }

func (keptSamples) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"probed": b.Zeros(t.Shape...), "probing": b.Const(0)}, nil
}

func (keptSamples) SampleAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 1, Every: 3} }

func (keptSamples) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, sdk.State{"probed": in.Probed, "probing": in.Probing}, nil
}

// keyed is a model whose loss with drawn labels is linear: each element has the key's low byte as
// gradient.
type keyed struct{ model.Language }

func (m keyed) Program(of model.ProgramOptions, wrt ...string) (*program.Program, error) {
	if !of.Head.Sampled {
		return m.Language.Program(of, wrt...)
	}
	b := program.NewBuilder("keyed")
	key := b.Input(network.Key, program.Type{DType: program.Uint, Shape: []int{2}})
	for _, p := range m.Params() {
		b.Input(p.Name, program.FloatType(p.Dims...))
	}
	slope := key.At(0, 0, 1).And(b.ConstUint(255)).Convert(program.Float).Reshape()
	for _, p := range m.Params() {
		if slices.Contains(wrt, p.Name) {
			b.Output(autodiff.Prefix+p.Name, slope.Broadcast(p.Dims, nil))
		}
	}
	b.Output(network.Losses, slope)
	return b.Build()
}

// TestSampledKeys checks that each micro-batch of each replica draws labels with its own key, and
// that optimizers get the mean of their gradients times √n for n tokens, without clipping. Steps
// between draw no labels.
func TestSampledKeys(t *testing.T) {
	counts := []int{1}
	if testdevice.Kind() != "cpu" {
		counts = append(counts, 2)
	}
	for _, replicas := range counts {
		for _, accumulate := range []int{1, 2} {
			t.Run(fmt.Sprint(replicas, accumulate), func(t *testing.T) {
				cfg := sgdConfig(t, "train.clip=0.01", fmt.Sprint("train.accumulate=", accumulate))
				plan := planOf(t, cfg, nil, keptSamples{})
				plan.Model = keyed{plan.Model.(model.Language)}
				c := compileOn(t, testdevice.Open(t, engine.Options{Count: replicas}), plan)
				s := newState(t, c)
				plan.Batch *= replicas
				n := float64(plan.Batch * accumulate * plan.Context)
				for i := range 4 {
					var tokens [][]int32
					for j := range accumulate {
						tokens = append(tokens, testrun.Tokens(uint64(i+j), plan.Batch, plan.Context+1, vocab))
					}
					run(t, c, s, tokens, step.Settings{Step: i + 1})
					want := 0.0
					for r := range replicas {
						for j := range accumulate {
							want += float64(step.LabelKey(c, i+1, j, r)[0]&255) / float64(replicas*accumulate)
						}
					}
					for name, got := range testrun.Download(t, c, s) {
						switch {
						case strings.HasSuffix(name, "/probing") && (got[0] == 1) != (i%3 == 0):
							t.Errorf("step %d: probing of %s is %v", i+1, name, got[0])
						case strings.HasSuffix(name, "/probed") && i%3 == 0:
							near(t, fmt.Sprintf("step %d: %s", i+1, name), float64(got[len(got)-1]), want*math.Sqrt(n),
								1e-6)
						}
					}
				}
			})
		}
	}
}

// TestSampledResume checks that a training draws the same labels after a checkpoint, other labels
// in another step, and that drawing changes nothing else: with noise of quantizers, with and
// without a teacher, and in both dispatches.
func TestSampledResume(t *testing.T) {
	testlevel.Long(t, "compiles several steps")
	for _, distilled := range []bool{false, true} {
		if testing.Short() && !distilled {
			continue
		}
		cfg := sgdConfig(t, "train.accumulate=2")
		build := func(o sdk.Optimizer, d step.Dispatch) compiledStep {
			plan := planOf(t, cfg, noisy{}, o)
			plan.Dispatch = d
			if distilled {
				plan.Distillation = &step.Distillation{Distillation: network.Distillation{Beta: 0.5,
					Temperature: 1, Weight: 0.5}, Teacher: plan.Model.(model.Language)}
			}
			k := started(t, cfg, plan)
			if err := k.Prepare(false); err != nil {
				t.Fatal(err)
			}
			if distilled {
				if err := k.LoadTeacher(loaded(testrun.Tensors(t, k.Compiled, k.State))); err != nil {
					t.Fatal(err)
				}
			}
			return k
		}
		one, two, single, plain := build(keptSamples{}, step.Chain), build(keptSamples{}, step.Chain),
			build(keptSamples{}, step.Single), build(descent{}, step.Chain)
		var last []float32
		for i := range 5 {
			set, tokens := step.Settings{Step: i + 1, Steps: 5, Rate: 0.01, NextRate: 0.01},
				batches(cfg, uint64(i/3), 2)
			if i == 2 {
				two.State = throughCheckpoint(t, two.Compiled, two.State)
			}
			for _, k := range []compiledStep{one, two, single, plain} {
				run(t, k.Compiled, k.State, tokens, set)
			}
			a := testrun.Download(t, one.Compiled, one.State)
			sameBits(t, "after a checkpoint", a, testrun.Download(t, two.Compiled, two.State))
			sameNearly(t, "dispatch", a, testrun.Download(t, single.Compiled, single.State))
			for name, want := range testrun.Download(t, plain.Compiled, plain.State) {
				if !slices.Equal(a[name], want) {
					t.Errorf("step %d: %s is another with drawn labels", i+1, name)
				}
			}
			if i%3 == 0 {
				probed := a["state/layers.0.mlp.w1/probed"]
				if norm2(wide(probed)) == 0 || slices.Equal(probed, last) {
					t.Errorf("step %d: the gradient is that of three steps before, or zero", i+1)
				}
				last = probed
			}
		}
	}
}

// TestSampledPrepared checks that the gradient with drawn labels is compiled before the first step.
func TestSampledPrepared(t *testing.T) {
	cfg := sgdConfig(t, "train.accumulate=2")
	plan := planOf(t, cfg, nil, keptSamples{})
	plan.Dispatch = step.Single
	k := started(t, cfg, plan)
	if err := k.Prepare(false); err != nil {
		t.Fatal(err)
	}
	before := k.Programs()
	run(t, k.Compiled, k.State, batches(cfg, 0, 2), step.Settings{Step: 1, Steps: 5})
	if n := k.Programs(); n != before {
		t.Errorf("the first step has compiled %d programs", n-before)
	}
}

// TestSampledRefused checks that a model without predictions cannot draw labels.
func TestSampledRefused(t *testing.T) {
	plan := planOf(t, sgdConfig(t), nil, keptSamples{})
	plan.Model = struct{ model.Model }{plan.Model}
	_, err := step.Compile(testdevice.OpenCPU(t, engine.Options{}), plan)
	if err == nil || !strings.Contains(err.Error(), "draws labels") {
		t.Errorf("%v", err)
	}
}
