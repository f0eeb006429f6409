package train_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// The quantizers and optimizers of this repository, with the settings for rows of 32 elements, and
// rates for progress in 30 steps.
var (
	matrixQuantizers = map[string]string{
		"quest": `quantizer={plugin="quest", bits=4}`, "absmax": `quantizer={plugin="absmax", bits=4}`,
		"mxfp4": `quantizer={plugin="mxfp4"}`, "nvfp4": `quantizer={plugin="nvfp4"}`,
		"lsq":     `quantizer={plugin="lsq", bits=4}`,
		"ternary": `quantizer={plugin="quest", form="ternary"}`,
	}
	matrixOptimizers = map[string]string{
		"adamw": `optimizer={plugin="adamw"}`, "sgd": `optimizer={plugin="sgd", momentum=0.9}`,
		"muon": `optimizer={plugin="muon"}`, "shampoo": `optimizer={plugin="shampoo"}`,
		"soap": `optimizer={plugin="soap"}`,
	}
	matrixRates = map[string]float64{"adamw": 3e-3, "sgd": 0.1, "muon": 3e-3, "shampoo": 3e-3,
		"soap": 3e-3}
)

// TestEveryPair checks the claim of the project: any quantizer trains with any optimizer, without
// and with both forms of the correction, from the same plugins. For each pair the loss falls, λ = 0
// gives the bits of a run without correction, and a resumed run ends with the bits of one that
// never stopped. By default each quantizer is tried with one optimizer and one form.
func TestEveryPair(t *testing.T) {
	testlevel.Long(t, "trains 30 models, or 270")
	for i, q := range slices.Sorted(maps.Keys(matrixQuantizers)) {
		for j, o := range slices.Sorted(maps.Keys(matrixOptimizers)) {
			if !sampled(i, j) {
				continue
			}
			t.Run(q+"/"+o, func(t *testing.T) {
				t.Parallel()
				cfg := testrun.Config(t, "train.steps=30", matrixQuantizers[q], matrixOptimizers[o],
					"method.lambda=5.0", "method.silence=0.5",
					fmt.Sprintf("schedule.rate=%v", matrixRates[o]), "train.log_every=1", "train.eval_every=0")
				off := testrun.Elsewhere(t, cfg, `method.form="off"`)
				testrun.Train(t, off, train.Options{})
				fell(t, off.Train.Out)
				for f, form := range []string{"decoupled", "coupled"} {
					if !testlevel.All() && f != i%2 {
						continue
					}
					on := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form))
					testrun.Train(t, on, train.Options{})
					fell(t, on.Train.Out)
					zero := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form), "method.lambda=0.0")
					testrun.Train(t, zero, train.Options{})
					testrun.SameRun(t, form+" with λ = 0", off.Train.Out, zero.Train.Out)
					inParts(t, on, 13)
				}
			})
		}
	}
}

// TestEveryPairWithTeacher checks that pairs learn from a teacher: the divergence falls, λ = 0
// gives the bits of a run without correction, and a resumed run those of one that never stopped.
func TestEveryPairWithTeacher(t *testing.T) {
	testlevel.Long(t, "trains 13 models, or 37")
	_, init := pretrained(t)
	for i, q := range []string{"quest", "mxfp4", "lsq"} {
		for j, o := range []string{"adamw", "muon", "soap"} {
			if !sampled(i, j) {
				continue
			}
			t.Run(q+"/"+o, func(t *testing.T) {
				t.Parallel()
				on := testrun.Config(t, "train.steps=30", matrixQuantizers[q], matrixOptimizers[o],
					"method.lambda=5.0", "method.silence=0.5",
					fmt.Sprintf("schedule.rate=%v", matrixRates[o]), "train.log_every=1", "train.eval_every=0",
					init, initialTeacher)
				testrun.Train(t, on, train.Options{})
				fell(t, on.Train.Out)
				off := testrun.Elsewhere(t, on, `method.form="off"`)
				testrun.Train(t, off, train.Options{})
				zero := testrun.Elsewhere(t, on, "method.lambda=0.0")
				testrun.Train(t, zero, train.Options{})
				testrun.SameRun(t, "λ = 0", off.Train.Out, zero.Train.Out)
				inParts(t, on, 13)
			})
		}
	}
}

// sampled reports whether the i-th choice is tried with the j-th optimizer: each choice with one
// optimizer, or with all of them in exhaustive tests.
func sampled(i, j int) bool { return testlevel.All() || i%len(matrixOptimizers) == j }

// fell fails unless the mean loss of a run's last steps is below that of its first.
func fell(t *testing.T, dir string) {
	t.Helper()
	list := records(t, dir)
	const few = 5
	mean := func(part []metrics.Record) float64 {
		total := 0.0
		for _, r := range part {
			total += float64(r.Loss)
		}
		return total / float64(len(part))
	}
	if first, last := mean(list[:few]), mean(list[len(list)-few:]); !(last < first) {
		t.Errorf("%s: the loss went from %.4f to %.4f", dir, first, last)
	}
}

// smallest lists models of several kinds that are as small as possible or have axes of one element:
// matrices of one row, one column, and one number.
var smallest = map[string]string{
	"toy":            `model = {kind = "toy", start = 0.9}`,
	"quadratic/1":    `model = {kind = "quadratic", dimension = 1, condition = 1.0}`,
	"quadratic/3":    `model = {kind = "quadratic", dimension = 3}`,
	"llama/2":        `model = {layers = 1, width = 2, heads = 1, hidden = 1, context = 1}`,
	"llama/shared":   `model = {layers = 1, width = 4, heads = 2, kv_heads = 1, hidden = 1, context = 2, head = "tied"}`,
	"olmo2/2":        `model = {kind = "olmo2", layers = 1, width = 2, heads = 1, hidden = 1, context = 1}`,
	"olmo2/one head": `model = {kind = "olmo2", layers = 1, width = 32, heads = 1, hidden = 32, context = 2}`,
}

// sizeQuantizers are those of [matrixQuantizers] for weights alone, other forms, and none.
var sizeQuantizers = map[string]string{
	"none":     "",
	"quest":    `quantizer.weights = {plugin = "quest", bits = 4}`,
	"official": `quantizer.weights = {plugin = "quest", bits = 4, form = "official"}`,
	"ternary":  `quantizer.weights = {plugin = "quest", form = "ternary"}`,
	"absmax":   `quantizer.weights = {plugin = "absmax", bits = 4}`,
	"mxfp4":    `quantizer.weights = {plugin = "mxfp4"}`,
	"nvfp4":    `quantizer.weights = {plugin = "nvfp4"}`,
	"lsq":      `quantizer.weights = {plugin = "lsq", bits = 4}`,
	"grid":     `quantizer.weights = {plugin = "grid", step = 0.25}`,
}

// TestEveryPairAtTheSmallestSizes checks that every quantizer trains with every optimizer on every
// kind of model if tensors have axes of one element, and that every loss is finite. Language models
// train with fewer quantizers. By default every quantizer of every model trains with one optimizer.
func TestEveryPairAtTheSmallestSizes(t *testing.T) {
	testlevel.Long(t, "trains 43 models, or 215")
	files, validation := testrun.Dataset(t)
	for n, name := range slices.Sorted(maps.Keys(smallest)) {
		for i, q := range slices.Sorted(maps.Keys(sizeQuantizers)) {
			for j, o := range slices.Sorted(maps.Keys(matrixOptimizers)) {
				language := strings.HasPrefix(name, "llama") || strings.HasPrefix(name, "olmo2")
				if language && !slices.Contains([]string{"none", "quest", "mxfp4", "lsq"}, q) ||
					!sampled(n+i, j) {
					continue // language models take longer
				}
				t.Run(fmt.Sprintf("%s/%s/%s", name, q, o), func(t *testing.T) {
					t.Parallel()
					text := fmt.Sprintf("%s\n%s\n%s\n", smallest[name], sizeQuantizers[q], matrixOptimizers[o])
					text += "train = {steps = 4, log_every = 1, %s out = %q}\nschedule = {rate = 1e-2}\nmethod " +
						"= {silence = 0.0}\n"
					batch := ""
					if language {
						batch = "batch = 1,"
						text += fmt.Sprintf("data = {train = %q, validation = %q}\n", files, validation)
					}
					trainsAtAll(t, testrun.Parse(t, fmt.Sprintf(text, batch, filepath.Join(t.TempDir(), "run"))))
				})
			}
		}
	}
}

// trainsAtAll runs a training and checks that every loss is finite.
func trainsAtAll(t *testing.T, cfg *config.Config) {
	t.Helper()
	testrun.Train(t, cfg, train.Options{})
	list := records(t, cfg.Train.Out)
	if len(list) < 4 {
		t.Errorf("%d records", len(list))
	}
	for _, r := range list {
		if v := float64(r.Loss); math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("step %d: the loss is %v", r.Step, v)
		}
	}
}
