package train_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// The quantizers and optimizers of this repository, with the settings that they need
// for rows of 32 elements, and the rates at which 30 steps make progress.
var (
	matrixQuantizers = map[string]string{
		"quest": `quantizer={plugin="quest", bits=4}`, "absmax": `quantizer={plugin="absmax", bits=4}`,
		"mxfp4": `quantizer={plugin="mxfp4"}`, "nvfp4": `quantizer={plugin="nvfp4"}`,
		"lsq":     `quantizer={plugin="lsq", bits=4}`,
		"ternary": `quantizer={plugin="quest", form="ternary"}`,
	}
	matrixOptimizers = map[string]string{
		"adamw": `optimizer={plugin="adamw"}`, "sgd": `optimizer={plugin="sgd", momentum=0.9}`,
		"muon": `optimizer={plugin="muon"}`, "shampoo": `optimizer={plugin="shampoo"}`, "soap": `optimizer={plugin="soap"}`,
	}
	matrixRates = map[string]float64{"adamw": 3e-3, "sgd": 0.1, "muon": 3e-3, "shampoo": 3e-3, "soap": 3e-3}
)

// TestEveryPair is the claim of the project: any quantizer trains with any optimizer,
// without and with both forms of the correction, from the same plugins. For each pair
// the loss falls, λ = 0 gives the bits of a run without correction, and a resumed run
// ends with the bits of one that never stopped.
func TestEveryPair(t *testing.T) {
	effort.Long(t, "trains 54 models, or 270")
	for i, q := range slices.Sorted(maps.Keys(matrixQuantizers)) {
		for j, o := range slices.Sorted(maps.Keys(matrixOptimizers)) {
			if !sampled(i, j) {
				continue
			}
			t.Run(q+"/"+o, func(t *testing.T) {
				t.Parallel()
				cfg := testrun.Config(t, "train.steps=30", matrixQuantizers[q], matrixOptimizers[o], "method.lambda=5.0", "method.silence=0.5",
					fmt.Sprintf("schedule.rate=%v", matrixRates[o]), "train.log_every=1", "train.eval_every=0")
				off := testrun.Elsewhere(t, cfg, `method.form="off"`)
				testrun.Train(t, off, train.Options{})
				fell(t, off.Train.Out)
				for _, form := range []string{"decoupled", "coupled"} {
					on := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form))
					testrun.Train(t, on, train.Options{})
					fell(t, on.Train.Out)
					zero := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form), "method.lambda=0.0")
					testrun.Train(t, zero, train.Options{})
					testrun.SameRun(t, form+" with λ = 0", off.Train.Out, zero.Train.Out)
					parts := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form))
					runParts(t, parts, 13)
					testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
					testrun.SameRun(t, form+" in two parts", on.Train.Out, parts.Train.Out)
				}
			})
		}
	}
}

// TestEveryPairWithTeacher: pairs learn from a teacher, too. The divergence falls, λ = 0 gives the bits of a run without
// correction, and a resumed run ends with the bits of one that never stopped.
func TestEveryPairWithTeacher(t *testing.T) {
	effort.Long(t, "trains 13 models, or 37")
	_, init := pretrained(t)
	for i, q := range []string{"quest", "mxfp4", "lsq"} {
		for j, o := range []string{"adamw", "muon", "soap"} {
			if !sampled(i, j) {
				continue
			}
			t.Run(q+"/"+o, func(t *testing.T) {
				t.Parallel()
				on := testrun.Config(t, "train.steps=30", matrixQuantizers[q], matrixOptimizers[o], "method.lambda=5.0", "method.silence=0.5",
					fmt.Sprintf("schedule.rate=%v", matrixRates[o]), "train.log_every=1", "train.eval_every=0", init, initialTeacher)
				testrun.Train(t, on, train.Options{})
				fell(t, on.Train.Out)
				off := testrun.Elsewhere(t, on, `method.form="off"`)
				testrun.Train(t, off, train.Options{})
				zero := testrun.Elsewhere(t, on, "method.lambda=0.0")
				testrun.Train(t, zero, train.Options{})
				testrun.SameRun(t, "λ = 0", off.Train.Out, zero.Train.Out)
				parts := testrun.Elsewhere(t, on)
				runParts(t, parts, 13)
				testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
				testrun.SameRun(t, "in two parts", on.Train.Out, parts.Train.Out)
			})
		}
	}
}

// sampled tells whether the i-th choice is tried with the j-th optimizer: each choice with one of them, unless all pairs are asked for.
func sampled(i, j int) bool { return effort.All() || i%len(matrixOptimizers) == j }

// fell fails unless the mean loss of a run's last steps is below that of its first.
func fell(t *testing.T, dir string) {
	t.Helper()
	records, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	const few = 5
	mean := func(part []metrics.Record) float64 {
		total := 0.0
		for _, r := range part {
			total += float64(r.Loss)
		}
		return total / float64(len(part))
	}
	if first, last := mean(records[:few]), mean(records[len(records)-few:]); !(last < first) {
		t.Errorf("%s: the loss went from %.4f to %.4f", dir, first, last)
	}
}
