package step_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
)

// TestStackedIsUnstacked: optimizers with products end with the same bits whether tensors
// are updated together or side by side.
// The CPU's products promise that only while all of them are small, or all large; at
// this size they are small.
func TestStackedIsUnstacked(t *testing.T) {
	effort.Long(t, "compiles many steps")
	for name, overrides := range map[string][]string{
		"muon": {`optimizer={plugin="muon"}`}, "shampoo": {`optimizer={plugin="shampoo"}`},
		"soap": {`optimizer={plugin="soap"}`}, "adamw": {`optimizer={plugin="adamw"}`},
		"quantized again": {`optimizer={plugin="muon"}`, `quantizer={plugin="lsq"}`, `method.variant="official"`},
		"coupled":         {`optimizer={plugin="soap"}`, `quantizer={plugin="mxfp4"}`, `method.form="coupled"`},
		"lotion":          {`optimizer={plugin="muon"}`, `method={name="lotion"}`, `quantizer={weights={plugin="quest"}}`},
		"grouped":         {`optimizer={plugin="muon"}`, "model.kv_heads=1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32")...)
			a, b := compiled(t, cfg, update.Unstacked), compiled(t, cfg, update.Stacked)
			for i := range 12 { // with refreshes, and without correction and with it
				set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i % 3), Statistics: i%4 == 1}
				x, y := run(t, a.Compiled, a.State, batches(cfg, uint64(i), 1), set), run(t, b.Compiled, b.State, batches(cfg, uint64(i), 1), set)
				x.Overhead, y.Overhead = 0, 0
				if diff := cmp.Diff(x, y); diff != "" {
					t.Fatalf("step %d: -side by side +together:\n%s", i+1, diff)
				}
			}
			sameBits(t, "side by side and together", testrun.Download(t, a.Compiled, a.State), testrun.Download(t, b.Compiled, b.State))
		})
	}
}

// compiledStep is a compiled step with a state that starts as all others do.
type compiledStep struct {
	*step.Compiled
	*step.State
}

// compiled is the step of a configuration under one stacking.
func compiled(t *testing.T, cfg *config.Config, s update.Stacking) compiledStep {
	t.Helper()
	plan := testrun.Plan(t, cfg)
	plan.Stacking = s
	return started(t, cfg, plan)
}

// started compiles a plan of a configuration and begins a state.
func started(t testing.TB, cfg *config.Config, plan step.Plan) compiledStep {
	t.Helper()
	c := testrun.Compile(t, plan)
	state, err := c.NewState(3, batches(cfg, 1, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(state.Close)
	return compiledStep{c, state}
}

// TestProducts: on the CPU nothing is stacked unless it is asked for; then a deeper
// model does not have more products, where there is something to gain.
func TestProducts(t *testing.T) {
	effort.Long(t, "compiles many steps")
	count := func(optimizer string, layers int, s update.Stacking) int {
		cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", fmt.Sprint("model.layers=", layers), fmt.Sprintf("optimizer={plugin=%q}", optimizer))
		n, err := compiled(t, cfg, s).Products()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, optimizer := range []string{"muon", "shampoo", "soap"} {
		two, four := count(optimizer, 2, update.Stacked), count(optimizer, 4, update.Stacked)
		if two != four || two == 0 {
			t.Errorf("%s: %d products for 2 layers, %d for 4", optimizer, two, four)
		}
		alone, byDevice := count(optimizer, 2, update.Unstacked), count(optimizer, 2, update.ByDevice)
		if alone < 2*two || byDevice != alone {
			t.Errorf("%s: %d products side by side, %d together, %d as the CPU has it", optimizer, alone, two, byDevice)
		}
	}
	if n := count("adamw", 2, update.Stacked); n != 0 {
		t.Errorf("adamw has %d products", n)
	}
}
