package study

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// visibleDevices is the variable by which a process of CUDA is told which GPUs it may use, and in which order.
const visibleDevices = "CUDA_VISIBLE_DEVICES"

// gpus shares the GPUs that this process may use among cells that run at once.
type gpus struct {
	names []string // as in CUDA_VISIBLE_DEVICES

	mu   sync.Mutex
	used []int // by how many cells each is used
}

func newGPUs() *gpus {
	names := machineGPUs()
	return &gpus{names: names, used: make([]int, len(names))}
}

// machineGPUs are the GPUs that this process may use; nil where that is not known. It reads no CUDA library: a cage without
// one can run the studies of one that has it.
func machineGPUs() []string {
	value, set := os.LookupEnv(visibleDevices)
	files, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well-formed
	return visible(value, set, len(files))
}

// visible are the GPUs that CUDA_VISIBLE_DEVICES names, or as many as there are if it is not set. A name that is none ends
// the list, as it does for CUDA.
func visible(value string, set bool, there int) (names []string) {
	if !set {
		for i := range there {
			names = append(names, strconv.Itoa(i))
		}
		return names
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

// leastUsed chooses n of the GPUs, those that the fewest cells use, in their order. Without so many it is nil.
func leastUsed(used []int, n int) []int {
	if n > len(used) {
		return nil
	}
	order := make([]int, len(used))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	return slices.Sorted(slices.Values(order[:n]))
}

// acquire reserves GPUs for a cell until release is called, and returns the variables that name them to the cell's
// processes. There are none for a cell on another device, or if there are too few GPUs, which the training then reports.
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
