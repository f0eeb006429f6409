package step_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/step"
)

// TestProductsApart: on the CPU, optimizers with products end where they end in a graph,
// but for rounding. That is so for one step: quantized weights turn a difference in the
// last bits into one of a step of the grid.
func TestProductsApart(t *testing.T) {
	if testrun.Device(t).Kind() != engine.CPU {
		t.Skip("other devices multiply in graphs")
	}
	for name, overrides := range map[string][]string{
		"muon": {`optimizer={plugin="muon"}`}, "soap": {`optimizer={plugin="soap"}`},
		"muon, parts": {`optimizer={plugin="muon", split="2"}`},
		"coupled":     {`optimizer={plugin="soap"}`, `method.form="coupled"`},
		"official":    {`optimizer={plugin="muon"}`, `method.variant="official"`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(overrides, "model.vocab=32")...)
			apart, graph := compiled(t, cfg, step.ByDevice), compiled(t, cfg, step.SideBySide)
			if tiled, all, err := apart.Tiled(); err != nil || !every(tiled, all) {
				t.Errorf("%d of %d rules are out of the graph (%v)", tiled, all, err)
			}
			set := step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3, Lambda: 2, Statistics: true}
			run(t, apart.Kernels, apart.State, batches(cfg, 1, 1), set)
			run(t, graph.Kernels, graph.State, batches(cfg, 1, 1), set)
			want := testrun.Download(t, graph.Kernels, graph.State)
			for name, x := range testrun.Download(t, apart.Kernels, apart.State) {
				distance, length := 0.0, 0.0
				for i, v := range want[name] {
					distance += math.Pow(float64(x[i]-v), 2)
					length += float64(v) * float64(v)
				}
				if !(distance <= 1e-8*length) && length > 1e-12 {
					t.Errorf("%s: the distance is %v of %v", name, math.Sqrt(distance), math.Sqrt(length))
				}
			}
		})
	}
}
