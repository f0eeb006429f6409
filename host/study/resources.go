package study

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/lists"
)

// coreFLOPs is the amount of work that keeps one core busy for about half a second. If a step takes
// less, cells that run side by side, with one core each, finish earlier than cells that run one
// after another on many cores: the operations of a small model are too short to be divided.
const coreFLOPs = 2e10

// stepFLOPs estimates the work of an optimizer step: six operations per parameter and token or, if
// the model is not a language model, those of the product with A.
func stepFLOPs(c *config.Config) float64 {
	m := c.Model
	if !m.Language() {
		return 6 * float64(m.Rows) * float64(m.Dimension) * float64(m.Dimension)
	}
	w, h := float64(m.Width), float64(m.Hidden)
	vocab := cmp.Or(float64(m.Vocab), w) // 0: known only from the data
	params := float64(m.Layers)*(4*w*w+3*w*h) + w*vocab
	return 6 * params * float64(c.Train.Batch) * float64(m.Context) * float64(c.Train.Accumulate)
}

func (c Cell) work(steps int) float64 {
	if c.Quantize != nil {
		return 0
	}
	return stepFLOPs(c.Config) * float64(max(0, steps))
}

// GPUs returns the largest number of GPUs that any of the cells needs.
func GPUs(cells []Cell) (count int) {
	for _, c := range cells {
		if c.Config.Device.Kind == "cuda" {
			count = max(count, 1, c.Config.Device.Count)
		}
	}
	return count
}

// share divides the cores among cells: it returns the number of cells that run at once and the
// number of threads of each. parallel is the requested number of cells; 0 means the number that
// suits the largest cell or, on GPUs, as many cells as can have their own GPUs.
func share(cells []Cell, cores, gpus, parallel int) (atOnce, threads int) {
	threads = 1
	for _, c := range cells {
		need := min(float64(cores), stepFLOPs(c.Config)/coreFLOPs)
		threads = max(threads, int(need), c.Config.Device.Threads)
	}
	count := GPUs(cells)
	switch {
	case parallel > 0:
	case count > 0:
		parallel = max(1, gpus/count)
	default:
		parallel = max(1, cores/threads)
	}
	parallel = max(1, min(parallel, len(cells)))
	return parallel, max(1, cores/parallel)
}

// visibleDevices is the environment variable that lists the GPUs that a CUDA process may use, in
// order.
const visibleDevices = "CUDA_VISIBLE_DEVICES"

// gpus shares the GPUs that this process may use among cells that run at once.
type gpus struct {
	names []string // as in CUDA_VISIBLE_DEVICES

	mu   sync.Mutex
	used []int // for each GPU, the number of cells that use it
}

// newGPUs finds the GPUs that this process may use; none if they are unknown. It does not use a
// CUDA library: a cage built without CUDA can run studies whose training uses a build with it.
func newGPUs() *gpus {
	value, set := os.LookupEnv(visibleDevices)
	files, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well-formed
	names := visible(value, set, len(files))
	return &gpus{names: names, used: make([]int, len(names))}
}

// visible returns the GPUs that CUDA_VISIBLE_DEVICES (value) names, or all of them if it is not
// set. As in CUDA, an empty or negative name ends the list.
func visible(value string, set bool, there int) (names []string) {
	if !set {
		return lists.Make(there, strconv.Itoa)
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.HasPrefix(name, "-") {
			break
		}
		names = append(names, name)
	}
	return names
}

// leastUsed chooses the n GPUs that the fewest cells use, and returns them in ascending order. It
// returns nil if there are fewer than n.
func leastUsed(used []int, n int) []int {
	if n > len(used) {
		return nil
	}
	order := lists.Range(len(used))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	return slices.Sorted(slices.Values(order[:n]))
}

// acquire reserves GPUs for a cell until release is called, and returns the environment variables
// that tell the cell's processes to use them. It returns none if the cell uses another device, or
// if there are too few GPUs, which training then reports.
func (g *gpus) acquire(c Cell) (environment []string, release func()) {
	if c.Config.Device.Kind != "cuda" {
		return nil, func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	chosen := leastUsed(g.used, max(1, c.Config.Device.Count))
	if chosen == nil {
		return nil, func() {}
	}
	var names []string
	for _, i := range chosen {
		g.used[i]++
		names = append(names, g.names[i])
	}
	return []string{visibleDevices + "=" + strings.Join(names, ",")}, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, i := range chosen {
			g.used[i]--
		}
	}
}
