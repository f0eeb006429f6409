package train_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// onlyParams returns a checkpoint with only its parameters.
func onlyParams(s checkpoint.State) checkpoint.State {
	s.Tensors = slices.DeleteFunc(slices.Clone(s.Tensors),
		func(t safetensors.Tensor) bool { return !strings.HasPrefix(t.Name, "param/") })
	return s
}

// The sampling settings of TestMovement.
const (
	every  = 2
	window = 4
)

// TestMovement samples all coordinates of a run, and recomputes the recorded measures by their
// definitions, from checkpoints and with the reference implementation in float64. The grid is that
// of absmax with one scale per tensor.
func TestMovement(t *testing.T) {
	cfg := testrun.Config(t, `quantizer={plugin="absmax", bits=4}`, testrun.TwoLayers,
		"model.vocab=257", "train.log_every=3", "train.checkpoint_every=1", "train.keep=100",
		"diagnostics.every=2", "diagnostics.window=4", "diagnostics.coordinates=1000000")
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
	codes, residuals := replay(t, cfg)
	byStep := map[int]metrics.Record{}
	for _, r := range records(t, cfg.Train.Out) {
		if r.ValLoss == nil {
			byStep[r.Step] = r
		}
	}
	for k := range codes {
		r, ok := byStep[every*(k+1)]
		switch {
		case !ok:
			t.Errorf("step %d is not recorded", every*(k+1))
		case k == 0:
			if r.FlipRate != nil || r.Weights != nil {
				t.Error("something has moved at the first sample")
			}
		default:
			checkMovement(t, r, codes[:k+1], residuals[:k+1])
		}
	}
	for _, step := range []int{3, 9, 15} {
		if r := byStep[step]; r.Loss == 0 || r.FlipRate != nil {
			t.Errorf("step %d, of which there is no sample: %+v", step, r)
		}
	}
}

// replay returns the codes and residuals of all quantized weights at each sample.
func replay(t *testing.T, cfg *config.Config) (codes, residuals [][]float64) {
	t.Helper()
	rules := testrun.Plan(t, cfg).Rules
	for step := every; step <= 20; step += every {
		values := testrun.Values(t, onlyParams(testrun.Checkpoint(t, cfg.Train.Out, step-1)))
		var c, e []float64
		for _, rule := range rules {
			if rule.Quantizer == nil {
				continue
			}
			x := reference.Floats(float64s(values["param/"+rule.Name]), rule.Shape...)
			out, err := reference.Run(rule.Quantizer.Program, map[string]reference.Tensor{spec.InputX: x})
			if err != nil {
				t.Fatal(err)
			}
			c = append(c, out[spec.OutputCodes].Float64s()...)
			for i, q := range out[spec.OutputValue].Floats {
				e = append(e, x.Floats[i]-q)
			}
		}
		codes, residuals = append(codes, c), append(residuals, e)
	}
	return codes, residuals
}

// checkMovement compares the record of the last sample with all samples up to it.
func checkMovement(t *testing.T, r metrics.Record, codes, residuals [][]float64) {
	t.Helper()
	flips, visits := 0, len(codes[0])
	for j := 1; j < len(codes); j++ {
		flips = 0
		for i, c := range codes[j] {
			if c != codes[j-1][i] {
				flips++
			}
		}
		visits += flips
	}
	n := float64(len(codes[0]))
	near(t, r, "flip rate", r.FlipRate, float64(flips)/n)
	near(t, r, "visits", r.Visits, float64(visits)/n)
	if *r.DwellMax > metrics.Number(r.Step) || *r.DwellMean < every || *r.DwellMedian > *r.DwellP90 ||
		*r.DwellP90 > *r.DwellMax {
		t.Errorf("step %d: dwell times: mean %v, median %v, ninth decile %v, largest %v", r.Step,
			*r.DwellMean, *r.DwellMedian, *r.DwellP90, *r.DwellMax)
	}
	if len(codes) < window {
		if r.Coherence != nil || r.CoherenceVector != nil {
			t.Errorf("step %d: a coherence before the window is full", r.Step)
		}
		return
	}
	near(t, r, "coherence of vectors", r.CoherenceVector,
		vectorCoherence(residuals[len(residuals)-window:]))
	if len(r.Weights) != 10 || r.Weights["layers.0.attn.qkv"].Coherence == nil {
		t.Errorf("step %d: weights %v", r.Step, r.Weights)
	}
}

// near allows for codes that are within float32 rounding of a boundary: a few of the 20,000.
func near(t *testing.T, r metrics.Record, what string, got *metrics.Number, want float64) {
	t.Helper()
	if got == nil || math.Abs(float64(*got)-want) > 2e-4 {
		t.Errorf("step %d: %s is %v, want %v", r.Step, what, got, want)
	}
}

func vectorCoherence(window [][]float64) float64 {
	sum, norms := make([]float64, len(window[0])), 0.0
	norm := func(v []float64) float64 {
		total := 0.0
		for _, x := range v {
			total += x * x
		}
		return math.Sqrt(total)
	}
	for _, e := range window {
		norms += norm(e)
		for i, x := range e {
			sum[i] += x
		}
	}
	return norm(sum) / norms
}

func float64s(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// sampling enables diagnostics, with a window that is full before half of the steps.
var sampling = []string{"diagnostics.every=2", "diagnostics.window=4",
	"diagnostics.coordinates=300", "train.checkpoint_every=5"}

// TestMovementResumes checks that the records do not depend on where a run was stopped.
func TestMovementResumes(t *testing.T) {
	testlevel.Long(t, "trains with many quantizers")
	for name, overrides := range map[string][]string{
		"quest": nil,
		"lsq":   {`quantizer={plugin="lsq"}`},
		"mxfp4": {`quantizer={plugin="mxfp4"}`},
		"lotion": {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`,
			`method={name="lotion"}`},
		"accumulated": {"train.accumulate=2", `method.form="coupled"`},
		"every step":  {"diagnostics.every=1"},
	} {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, append(slices.Clone(sampling), overrides...)...)
			testrun.Train(t, whole, train.Options{})
			inParts(t, whole, 1, 7, 14)
			list := records(t, whole.Train.Out)
			moved := slices.ContainsFunc(list,
				func(r metrics.Record) bool {
					return r.FlipRate != nil && *r.FlipRate > 0 && r.Coherence != nil
				})
			if !moved {
				t.Error("no code has changed: the comparison compares nothing")
			}
		})
	}
}

// TestMovementWithSkippedSteps checks that a run which stops at a step that is not finite repeats
// this step and samples it once.
func TestMovementWithSkippedSteps(t *testing.T) {
	testlevel.Long(t, "trains several times")
	runs := poisoned(t, 2, append(slices.Clone(sampling), "diagnostics.every=1",
		"train.max_skipped=1")...)
	stopped, whole := runs[0], runs[1]
	failing(t, testrun.Again(t, stopped))
	testrun.Train(t, testrun.Again(t, stopped, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.Train(t, testrun.Again(t, whole, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.SameRun(t, "stopped for skipped steps and not", stopped.Train.Out, whole.Train.Out)
	skipped := 0
	for _, r := range records(t, whole.Train.Out) {
		if r.ValLoss == nil && r.Skipped > skipped {
			skipped = r.Skipped
			continue
		}
		if r.ValLoss == nil && r.Step > 3 && r.Skipped == skipped && r.FlipRate == nil {
			t.Errorf("step %d has no flip rate", r.Step)
		}
	}
	if skipped < 2 {
		t.Errorf("%d steps were skipped", skipped)
	}
}

// TestMovementChangesNothing checks that diagnostics change neither parameters nor optimizer
// states, and that a run without them records none.
func TestMovementChangesNothing(t *testing.T) {
	off := testrun.Config(t)
	on := testrun.Elsewhere(t, off, sampling...)
	testrun.Train(t, off, train.Options{})
	testrun.Train(t, on, train.Options{})
	without := testrun.Checkpoint(t, on.Train.Out, 20)
	without.Tensors = slices.DeleteFunc(without.Tensors,
		func(t safetensors.Tensor) bool { return strings.HasPrefix(t.Name, "diagnostics/") })
	testrun.SameTensors(t, "without and with diagnostics", testrun.Checkpoint(t, off.Train.Out, 20),
		without)
	for _, line := range testrun.Records(t, off.Train.Out) {
		if strings.Contains(line, "flip_rate") || strings.Contains(line, "weights") {
			t.Fatalf("a run without diagnostics records them: %s", line)
		}
	}
}

// TestMovementBeginsAnew checks that a run resumed with another window drops its samples, and that
// diagnostics work without quantized weights.
func TestMovementBeginsAnew(t *testing.T) {
	testlevel.Long(t, "trains twice")
	cfg := testrun.Config(t, sampling...)
	runParts(t, cfg, 10)
	testrun.Train(t, testrun.Again(t, cfg, "diagnostics.window=3"), train.Options{Resume: true})
	for _, r := range records(t, cfg.Train.Out) {
		if want := r.Step%2 == 0 && r.Step != 2 && r.Step != 12; r.ValLoss == nil &&
			want != (r.FlipRate != nil) {
			t.Errorf("step %d: flip rate %v", r.Step, r.FlipRate)
		}
	}
	same := testrun.Config(t, sampling...)
	runParts(t, same, 10)
	testrun.Train(t, testrun.Again(t, same, "diagnostics.tensors=true"), train.Options{Resume: true})
	for _, r := range records(t, same.Train.Out) {
		if r.Step == 12 && r.FlipRate == nil {
			t.Error("the samples are forgotten when only numbers of tensors are asked for")
		}
	}
	fresh := testrun.Config(t, append(slices.Clone(sampling), `quantizer={plugin="none"}`)...)
	testrun.Train(t, fresh, train.Options{})
}

// TestMovementOfDamagedState checks that the error names the tensor that a checkpoint lacks.
func TestMovementOfDamagedState(t *testing.T) {
	cfg := testrun.Config(t, sampling...)
	runParts(t, cfg, 10)
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	s.Tensors = slices.DeleteFunc(s.Tensors,
		func(t safetensors.Tensor) bool { return t.Name == "diagnostics/since" })
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	again := testrun.Again(t, cfg)
	refused(t, "damaged samples", again, train.Options{Resume: true},
		"there is no tensor diagnostics/since")
}

// TestFLOPs checks that operations of whole steps count, even if not all tokens are targets.
func TestFLOPs(t *testing.T) {
	for _, documents := range []string{"joined", "separate"} {
		cfg := testrun.Config(t, "model.vocab=257", "train.steps=6", "train.log_every=2",
			"train.accumulate=2", "data.documents="+strconv.Quote(documents))
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
				got := float64(*r.FLOPSPerSecond) * float64(r.Seconds-before.Seconds) / float64(
					r.Step-before.Step)
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

// TestTensors checks the records of single tensors: they add up to the totals, have the rates of
// their groups, and give the speed as a fraction of the device's peak.
func TestTensors(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=257", "train.steps=6", "train.log_every=2",
		"diagnostics={every=2, window=2, coordinates=300, tensors=true}", "device.peak_tflops=0.5",
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
			t.Errorf("step %d: gradients of tensors have norm %v together, all have %v; %d are quantized",
				r.Step, math.Sqrt(squares), all, quantized)
		}
		if share := float64(*r.FLOPSPerSecond) / 0.5e12; math.Abs(float64(*r.MFU)-share) > 1e-12 ||
			share <= 0 {
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
