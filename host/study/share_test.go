package study

import (
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
)

// Small models run side by side, large ones alone.
func TestShare(t *testing.T) {
	toy := architecture.Settings{Kind: architecture.KindToy, Rows: 1, Dimension: 1}
	llama := func(layers, width int) architecture.Settings {
		return architecture.Settings{Kind: architecture.KindLlama, Layers: layers, Width: width, Hidden: 4 * width, Context: 128}
	}
	cell := func(m architecture.Settings, threads int, device string) Cell {
		return Cell{Config: &config.Config{Model: m, Train: config.Train{Batch: 16, Accumulate: 1},
			Device: config.Device{Kind: device, Threads: threads}}}
	}
	many := func(c Cell) []Cell { return []Cell{c, c, c, c, c, c, c, c, c} }
	for _, c := range []struct {
		name            string
		cells           []Cell
		parallel        int
		atOnce, threads int
	}{
		{"toys", many(cell(toy, 0, "cpu")), 0, 8, 1},
		{"two toys", many(cell(toy, 0, "cpu"))[:2], 0, 2, 4},
		{"toys, three at once", many(cell(toy, 0, "cpu")), 3, 3, 2},
		{"toys, many at once", many(cell(toy, 0, "cpu")), 100, 9, 1},
		{"toys with four threads", many(cell(toy, 4, "cpu")), 0, 2, 4},
		{"tiny models", many(cell(llama(2, 64), 0, "cpu")), 0, 8, 1},
		{"middle models", many(cell(llama(4, 128), 0, "cpu")), 0, 8, 1},
		{"larger models", many(cell(llama(6, 256), 0, "cpu")), 0, 2, 4},
		{"large models", many(cell(llama(12, 768), 0, "cpu")), 0, 1, 8},
		{"large models, two at once", many(cell(llama(12, 768), 0, "cpu")), 2, 2, 4},
		{"a large one among toys", append(many(cell(toy, 0, "cpu")), cell(llama(12, 768), 0, "cpu")), 0, 1, 8},
		{"a GPU", many(cell(toy, 0, "cuda")), 0, 1, 8},
		{"nothing", nil, 0, 1, 8},
	} {
		atOnce, threads := share(c.cells, 8, c.parallel)
		if atOnce != c.atOnce || threads != c.threads {
			t.Errorf("%s: %d at once with %d threads, want %d with %d", c.name, atOnce, threads, c.atOnce, c.threads)
		}
	}
	for _, c := range []Cell{cell(llama(2, 64), 0, "cpu"), cell(llama(4, 128), 0, "cpu")} {
		t.Logf("%.3g FLOPs a step", stepFLOPs(c.Config))
	}
}
