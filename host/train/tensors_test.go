package train_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/metrics"
)

// TestFLOPs: the operations are those of whole steps, also where not every token is a target.
func TestFLOPs(t *testing.T) {
	for _, documents := range []string{"joined", "separate"} {
		cfg := testrun.Config(t, "model.vocab=257", "train.steps=6", "train.log_every=2", "train.accumulate=2", "data.documents="+strconv.Quote(documents))
		testrun.Train(t, testrun.Again(t, cfg), train.Options{})
		m, err := model.New(cfg.Model, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := 2 * m.StepFLOPs(cfg.Train.Batch, cfg.Model.Context)
		var before metrics.Record
		seen := 0
		for _, r := range records(t, cfg.Train.Out) {
			if r.FLOPSPerSecond != nil {
				got := float64(*r.FLOPSPerSecond) * float64(r.Seconds-before.Seconds) / float64(r.Step-before.Step)
				if math.Abs(got-want) > 1e-6*want {
					t.Errorf("%s documents, step %d: %v operations a step, want %v", documents, r.Step, got, want)
				}
				seen++
			}
			before = r
		}
		if seen < 3 {
			t.Errorf("%d records have operations", seen)
		}
	}
}

// TestTensors: the numbers of single tensors add up to those of all, the rate is that of
// the tensor's group, and speed is told as a share of the device.
func TestTensors(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=257", "train.steps=6", "train.log_every=2", "diagnostics={every=2, window=2, coordinates=300, tensors=true}", "device.peak_tflops=0.5",
		`optimizer.groups=[{match="*norm*", rate=0.5}]`)
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
	plan := testrun.Plan(t, cfg)
	seen := 0
	for _, r := range records(t, cfg.Train.Out) {
		if r.ValLoss != nil {
			continue
		}
		seen++
		if len(r.Weights) != len(plan.Rules) {
			t.Fatalf("step %d has numbers of %d tensors, want %d", r.Step, len(r.Weights), len(plan.Rules))
		}
		if moved := r.FlipRate != nil; moved != (r.Step >= 4) {
			t.Errorf("step %d: the record of a sample is there: %v", r.Step, moved)
		}
		squares, quantized := 0.0, 0
		for _, rule := range plan.Rules {
			w := r.Weights[rule.Name]
			squares += math.Pow(float64(*w.GradNorm), 2)
			if want := float64(r.LR) * rule.RateFactor; math.Abs(float64(*w.LR)-want) > 1e-12 {
				t.Errorf("%s: rate %v, want %v", rule.Name, *w.LR, want)
			}
			if (w.ErrorRel != nil) != (rule.Quantizer != nil) {
				t.Errorf("%s: error %v, and quantized is %v", rule.Name, w.ErrorRel, rule.Quantizer != nil)
			}
			if w.ErrorRel != nil {
				quantized++
				if *w.ErrorRel <= 0 || *w.ErrorRel > 1 {
					t.Errorf("%s: error %v", rule.Name, *w.ErrorRel)
				}
			}
		}
		if all := float64(*r.GradNorm); math.Abs(math.Sqrt(squares)-all) > 1e-9*all || quantized == 0 {
			t.Errorf("step %d: gradients of tensors have norm %v together, all have %v; %d are quantized", r.Step, math.Sqrt(squares), all, quantized)
		}
		if share := float64(*r.FLOPSPerSecond) / 0.5e12; math.Abs(float64(*r.MFU)-share) > 1e-12 || share <= 0 {
			t.Errorf("step %d: share of the device %v, want %v", r.Step, *r.MFU, share)
		}
		if r.MemoryBytes == nil || *r.MemoryBytes < 1<<20 {
			t.Errorf("step %d: memory %v", r.Step, r.MemoryBytes)
		}
	}
	if seen != 4 {
		t.Errorf("%d records, want 4: steps 1, 2, 4 and 6", seen)
	}
}
