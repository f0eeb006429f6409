package train_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// smallest are the models of all kinds as small as they can be, and with axes of one
// element and of few: matrices of one row, of one column, and of one number.
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
	"none":  "",
	"quest": `quantizer.weights = {plugin = "quest", bits = 4}`, "official": `quantizer.weights = {plugin = "quest", bits = 4, form = "official"}`,
	"ternary": `quantizer.weights = {plugin = "quest", form = "ternary"}`, "absmax": `quantizer.weights = {plugin = "absmax", bits = 4}`,
	"mxfp4": `quantizer.weights = {plugin = "mxfp4"}`, "nvfp4": `quantizer.weights = {plugin = "nvfp4"}`,
	"lsq": `quantizer.weights = {plugin = "lsq", bits = 4}`, "grid": `quantizer.weights = {plugin = "grid", step = 0.25}`,
}

// TestEveryPairAtTheSmallestSizes: every quantizer trains with every optimizer, on every
// kind of model, where tensors have axes of one element, and every loss is a number.
// Language models train with fewer quantizers. Usually every quantizer of every model
// trains with one of the optimizers.
func TestEveryPairAtTheSmallestSizes(t *testing.T) {
	effort.Long(t, "trains 43 models, or 215")
	files, validation := testrun.Dataset(t)
	for n, name := range slices.Sorted(maps.Keys(smallest)) {
		for i, q := range slices.Sorted(maps.Keys(sizeQuantizers)) {
			for j, o := range slices.Sorted(maps.Keys(matrixOptimizers)) {
				language := strings.HasPrefix(name, "llama") || strings.HasPrefix(name, "olmo2")
				if language && !slices.Contains([]string{"none", "quest", "mxfp4", "lsq"}, q) || !sampled(n+i, j) {
					continue // language models take longer
				}
				t.Run(fmt.Sprintf("%s/%s/%s", name, q, o), func(t *testing.T) {
					t.Parallel()
					text := fmt.Sprintf("%s\n%s\n%s\n", smallest[name], sizeQuantizers[q], matrixOptimizers[o])
					text += "train = {steps = 4, log_every = 1, %s out = %q}\nschedule = {rate = 1e-2}\nmethod = {silence = 0.0}\n"
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

// trainsAtAll runs a training and looks at every loss.
func trainsAtAll(t *testing.T, cfg *config.Config) {
	t.Helper()
	testrun.Train(t, cfg, train.Options{})
	records, err := metrics.Read[metrics.Record](rundir.At(cfg.Train.Out).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	if len(records) < 4 {
		t.Errorf("%d records", len(records))
	}
	for _, r := range records {
		if v := float64(r.Loss); math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("step %d: the loss is %v", r.Step, v)
		}
	}
}
