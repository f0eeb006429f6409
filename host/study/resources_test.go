package study

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
)

// TestShare checks that small models run side by side, and large ones alone.
func TestShare(t *testing.T) {
	toy := architecture.Settings{Kind: architecture.KindToy, Rows: 1, Dimension: 1}
	llama := func(layers, width int) architecture.Settings {
		return architecture.Settings{Kind: architecture.KindLlama, Layers: layers, Width: width,
			Hidden: 4 * width, Context: 128}
	}
	cell := func(m architecture.Settings, threads int, device string) Cell {
		return Cell{Config: &config.Config{Model: m, Train: config.Train{Batch: 16, Accumulate: 1},
			Device: config.Device{Kind: device, Threads: threads}}}
	}
	pair, eight := cell(toy, 0, "cuda"), cell(toy, 0, "cuda")
	pair.Config.Device.Count, eight.Config.Device.Count = 2, 8
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
		{"a large one among toys", append(many(cell(toy, 0, "cpu")), cell(llama(12, 768), 0, "cpu")), 0,
			1, 8},
		{"four GPUs", many(cell(toy, 0, "cuda")), 0, 4, 2},
		{"two pairs of GPUs", append(many(cell(toy, 0, "cuda")), pair), 0, 2, 4},
		{"too few GPUs", []Cell{eight}, 0, 1, 8},
		{"a GPU for two", many(cell(toy, 0, "cuda")), 8, 8, 1},
		{"nothing", nil, 0, 1, 8},
	} {
		atOnce, threads := share(c.cells, 8, 4, c.parallel)
		if atOnce != c.atOnce || threads != c.threads {
			t.Errorf("%s: %d at once with %d threads, want %d with %d", c.name, atOnce, threads, c.atOnce,
				c.threads)
		}
	}

}

func TestVisible(t *testing.T) {
	for _, c := range []struct {
		value string
		set   bool
		there int
		want  []string
	}{
		{"", false, 0, nil},
		{"", false, 3, []string{"0", "1", "2"}},
		{"", true, 3, nil}, // all are hidden
		{"2,0", true, 3, []string{"2", "0"}},
		{" 5 , 6", true, 0, []string{"5", "6"}},
		{"1,-1,0", true, 3, []string{"1"}},
		{"GPU-8a1,MIG-7", true, 1, []string{"GPU-8a1", "MIG-7"}},
		{"-1", true, 3, nil},
	} {
		if got := visible(c.value, c.set, c.there); !slices.Equal(got, c.want) {
			t.Errorf("CUDA_VISIBLE_DEVICES %q (set: %v), %d there: %q, want %q", c.value, c.set, c.there,
				got, c.want)
		}
	}
}

func TestLeastUsed(t *testing.T) {
	for _, c := range []struct {
		used []int
		n    int
		want []int
	}{
		{[]int{0, 0, 0}, 1, []int{0}},
		{[]int{1, 0, 0}, 1, []int{1}},
		{[]int{1, 1, 0}, 2, []int{0, 2}},
		{[]int{2, 1, 2}, 1, []int{1}},
		{[]int{3, 0}, 2, []int{0, 1}},
		{[]int{0}, 2, nil},
		{nil, 1, nil},
	} {
		if got := leastUsed(c.used, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%d of GPUs with %v cells: %v, want %v", c.n, c.used, got, c.want)
		}
	}
}

// TestTakeGPUs checks that cells that run at once have separate GPUs while there are enough, and
// then share them evenly.
func TestTakeGPUs(t *testing.T) {
	t.Setenv(visibleDevices, "4,7,5")
	g := newGPUs()
	cell := func(kind string, count int) Cell {
		c := Cell{Config: &config.Config{}}
		c.Config.Device.Kind, c.Config.Device.Count = kind, count
		return c
	}
	taken := func(c Cell, want ...string) func() {
		t.Helper()
		environment, release := g.acquire(c)
		if !slices.Equal(environment, want) {
			t.Errorf("the environment is %q, want %q", environment, want)
		}
		return release
	}
	first := taken(cell("cuda", 0), "CUDA_VISIBLE_DEVICES=4")
	taken(cell("cuda", 2), "CUDA_VISIBLE_DEVICES=7,5")
	taken(cell("cpu", 1))
	taken(cell("cuda", 4)) // too few GPUs: training reports it
	first()
	second := taken(cell("cuda", 1), "CUDA_VISIBLE_DEVICES=4")
	third := taken(cell("cuda", 1), "CUDA_VISIBLE_DEVICES=4")
	second()
	third()
	taken(cell("cuda", 1), "CUDA_VISIBLE_DEVICES=4")
	t.Setenv(visibleDevices, "")
	if environment, _ := newGPUs().acquire(cell("cuda", 1)); environment != nil {
		t.Errorf("with all GPUs hidden: %q", environment)
	}
}
