package train_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// exampleOptimizers are those in examples/plugins, with rates for progress in 30 steps.
var exampleOptimizers = map[string]float64{"lion": 1e-3, "adopt": 3e-3, "ademamix": 3e-3,
	"adafactor": 0.1, "schedule-free": 3e-3, "prodigy": 1, "polyak": 1, "adam8bit": 3e-3, "sam": 0.3,
	"sophia": 1e-3, "mars": 3e-3}

// exampleSettings are the settings of optimizers whose defaults would have no effect in a model
// this small.
var exampleSettings = map[string]string{"adam8bit": ", min_size=0", "sophia": ", every=3"}

// exampleQuantizers are the quantizers that they are combined with in turn.
var exampleQuantizers = []string{"quest", "absmax", "lsq"}

// TestExampleOptimizers checks the optimizers in examples/plugins with several quantizers and both
// forms of the correction, as TestEveryPair does for those in plugins. By default each trains once,
// with one form.
func TestExampleOptimizers(t *testing.T) {
	testlevel.Long(t, "builds plugins, and trains models with them")
	for i, o := range slices.Sorted(maps.Keys(exampleOptimizers)) {
		t.Run(o, func(t *testing.T) {
			t.Parallel()
			exe := testrun.Example(t, o)
			cfg := testrun.Config(t, "train.steps=30",
				matrixQuantizers[exampleQuantizers[i%len(exampleQuantizers)]],
				fmt.Sprintf("optimizer={plugin=%q%s}", exe.Path, exampleSettings[o]),
				"method.lambda=5.0", "method.silence=0.5",
				fmt.Sprintf("schedule.rate=%v", exampleOptimizers[o]), "train.log_every=1",
				"train.eval_every=0")
			off := testrun.Elsewhere(t, cfg, `method.form="off"`)
			if testlevel.All() {
				testrun.Train(t, off, train.Options{})
				fell(t, off.Train.Out)
			}
			for f, form := range []string{"decoupled", "coupled"} {
				if !testlevel.All() && f != i%2 {
					continue
				}
				on := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form))
				testrun.Train(t, on, train.Options{})
				fell(t, on.Train.Out)
				inParts(t, on, 13)
				if testlevel.All() {
					zero := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.form=%q", form), "method.lambda=0.0")
					testrun.Train(t, zero, train.Options{})
					testrun.SameRun(t, form+" with λ = 0", off.Train.Out, zero.Train.Out)
				}
			}
		})
	}
}
