package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestAverageOfSteps compares the averages of train.average with averages in float64 of the trained
// tensors after each step. It checks that they change no bit of the training, equal the tensors
// before averaging begins, go through a checkpoint, and are used for evaluation.
func TestAverageOfSteps(t *testing.T) {
	testlevel.Long(t, "compiles six steps")
	const steps, first = 7, 3
	overrides := []string{
		testrun.TwoLayers, "model.vocab=32", `quantizer={plugin="lsq"}`, "train.steps=7",
	}
	cfg := testrun.Config(t, overrides...)
	b, dev := batches(cfg, 9, 1), testdevice.OpenCPU(t, engine.Options{})
	with := testrun.Config(t, append(overrides, `train.average="ema"`)...)
	for _, r := range planOf(t, with, oneScale{}, descent{}).Rules {
		if averaged := r.Average != nil; averaged != (r.Constrain == nil) {
			t.Errorf("%s is averaged: %t", r.Name, averaged)
		}
	}
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		training := func(more ...string) compiledStep {
			plan := testrun.Plan(t, testrun.Config(t, append(overrides, more...)...))
			plan.Dispatch = dispatch
			c := compileOn(t, dev, plan)
			return compiledStep{c, newState(t, c, b[0]...)}
		}
		plain := training()
		ema := training(`train.average="ema"`, "train.average_decay=0.75", "train.average_from=3")
		uniform := training(`train.average="uniform"`, "train.average_from=0.3")
		want := map[string]map[string][]float64{"ema": {}, "uniform": {}}
		start := testrun.Download(t, uniform.Compiled, uniform.State)
		for i := range steps {
			set := step.Settings{
				Step: i + 1, Steps: steps, Rate: 0.05, NextRate: 0.05, Lambda: float64(i / 3),
			}
			for _, k := range []compiledStep{plain, ema, uniform} {
				run(t, k.Compiled, k.State, batches(cfg, uint64(i), 1), set)
			}
			got := map[string]map[string][]float32{
				"ema":     testrun.Download(t, ema.Compiled, ema.State),
				"uniform": testrun.Download(t, uniform.Compiled, uniform.State),
			}
			for name, values := range testrun.Download(t, plain.Compiled, plain.State) {
				for kind, have := range got {
					sameBits(t, fmt.Sprint("with an average, step ", i+1),
						map[string][]float32{name: values}, map[string][]float32{name: have[name]})
					if !strings.HasPrefix(name, "param/") {
						continue
					}
					sum := want[kind][name]
					if i+1 <= first {
						sum = make([]float64, len(values))
					}
					for j, x := range values {
						switch n := float64(i + 2 - first); {
						case i+1 <= first:
							sum[j] = float64(x)
						case kind == "ema":
							sum[j] = 0.75*sum[j] + 0.25*float64(x)
						default:
							sum[j] += (float64(x) - sum[j]) / n
						}
					}
					want[kind][name] = sum
					mean := have[step.EvaluationNames(name)[1]]
					for j, x := range sum {
						// Each step rounds a difference, a product and a sum, none larger than the averaged values.
						size := max(math.Abs(x), math.Abs(float64(values[j])))
						d := math.Abs(float64(mean[j]) - x)
						if d > float64(i)*0x1p-22*size || i+1 <= first && d != 0 {
							t.Fatalf("%s, step %d: the %s of %s is %v, want %v",
								dispatch, i+1, kind, name, mean[j], x)
						}
					}
				}
			}
		}
		for name, values := range start {
			if strings.HasPrefix(name, "param/") {
				average := start[step.EvaluationNames(name)[1]]
				sameBits(t, "the average at the start",
					map[string][]float32{"": values}, map[string][]float32{"": average})
			}
		}
		load := loaded(testrun.Tensors(t, uniform.Compiled, uniform.State))
		s, err := plain.UploadParams(func(name string) (step.Tensor, error) {
			return load(step.EvaluationNames(name)[1])
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		losses := func(k compiledStep) map[string][]float32 {
			return map[string][]float32{"losses": evaluated(t, k.Compiled, k.State, b[0])}
		}
		before := testrun.Download(t, uniform.Compiled, uniform.State)
		sameBits(t, "evaluated", losses(uniform), losses(compiledStep{plain.Compiled, s}))
		sameBits(t, "after an evaluation", before, testrun.Download(t, uniform.Compiled, uniform.State))
		next := throughCheckpoint(t, uniform.Compiled, uniform.State)
		sameBits(t, "through a checkpoint", before, testrun.Download(t, uniform.Compiled, next))
		if l := losses(plain)["losses"]; l[0] == losses(ema)["losses"][0] {
			t.Error("the average is not evaluated")
		}
	}
}
