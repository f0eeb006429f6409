package study

import (
	"github.com/cage-qat/cage/host/train/config"
)

// coreFLOPs is the work of a step that keeps one core busy for about half a second.
// Below it, cells side by side finish earlier than one after the other on many cores:
// the operations of a small model are too short to be divided.
const coreFLOPs = 2e10

// stepFLOPs estimates the work of one optimizer step: six operations for each parameter
// and token, or those of the product with A.
func stepFLOPs(c *config.Config) float64 {
	m := c.Model
	if !m.Language() {
		return 6 * float64(m.Rows) * float64(m.Dimension) * float64(m.Dimension)
	}
	w, h := float64(m.Width), float64(m.Hidden)
	vocab := float64(m.Vocab)
	if vocab == 0 {
		vocab = w // known only from the data
	}
	params := float64(m.Layers)*(4*w*w+3*w*h) + w*vocab
	return 6 * params * float64(c.Train.Batch) * float64(m.Context) * float64(c.Train.Accumulate)
}

// steps returns the number of steps of the cell's training.
func (c Cell) steps() int {
	if c.Quantize != nil {
		return 0
	}
	return c.Config.Train.Steps
}

// work estimates the operations of some steps of a run.
func work(c *config.Config, steps int) float64 { return stepFLOPs(c) * float64(max(0, steps)) }

// share divides the cores among cells: it returns how many cells run at once, and how many
// threads each has. parallel is the number of cells at once that was requested; 0 means the
// number that suits the largest cell. Cells on GPUs run one at a time unless requested
// otherwise.
func share(cells []Cell, cores, parallel int) (atOnce, threads int) {
	threads = 1
	for _, c := range cells {
		need := min(float64(cores), stepFLOPs(c.Config)/coreFLOPs)
		threads = max(threads, int(need), c.Config.Device.Threads)
		if c.Config.Device.Kind == "cuda" {
			threads = cores
		}
	}
	if parallel == 0 {
		parallel = max(1, cores/threads)
	}
	parallel = max(1, min(parallel, len(cells)))
	return parallel, max(1, cores/parallel)
}
