package step_test

import (
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
)

// TestPrepared: after Prepare nothing is compiled any more, whatever a training asks for:
// steps without correction and with it, refreshes that are late, statistics, stationarity
// measures and evaluations.
func TestPrepared(t *testing.T) {
	effort.Long(t, "compiles many steps")
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		for name, overrides := range map[string][]string{
			"soap, late": {`optimizer={plugin="soap", refresh_delay=2}`, "train.accumulate=2"},
			"shampoo":    {`optimizer={plugin="shampoo"}`, `quantizer={plugin="lsq"}`},
			"full":       {`method.gradient="full"`, "train.accumulate=2"},
		} {
			t.Run(string(dispatch)+"/"+name, func(t *testing.T) {
				cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32")...)
				plan := testrun.Plan(t, cfg)
				plan.Dispatch = dispatch
				k := started(t, cfg, plan)
				if err := k.Prepare(true); err != nil {
					t.Fatal(err)
				}
				before := testrun.Device(t).Compiled()
				for i := range 14 {
					set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i % 2), Statistics: i%3 == 0, ParetoLambda: 1}
					set.Pareto = i%4 == 0
					set.ParetoSTE = set.Pareto && !plan.FullPrecision
					run(t, k.Compiled, k.State, batches(cfg, uint64(i), cfg.Train.Accumulate), set)
				}
				e, err := k.Evaluator(k.State)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				if _, err := e.Losses(batches(cfg, 1, 1)[0]); err != nil {
					t.Fatal(err)
				}
				if n := testrun.Device(t).Compiled() - before; n != 0 {
					t.Errorf("%d executables were compiled after Prepare", n)
				}
			})
		}
	}
}
