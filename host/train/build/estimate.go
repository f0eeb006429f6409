package build

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/sdk/program"
)

// Part is one item of the memory that a run needs.
type Part struct {
	What  string  `json:"what"`
	Bytes float64 `json:"bytes"`
}

// String returns p as a row of a table.
func (p Part) String() string { return fmt.Sprintf("%-10s %s", Bytes(p.Bytes), p.What) }

// beside estimates the bytes that a run on the CPU needs besides its compiled programs. Checkpoints
// need none: they are written directly from the parameters and states, and read tensor by tensor.
func beside(cfg *config.Config, programs *Programs) float64 {
	if programs.Forward {
		return 0
	}
	words, samples, quantized := workspaces(programs, cfg.Device.Threads), 0.0, 0.0
	for _, t := range programs.Tensors {
		q, weight := programs.Weights[t.Name]
		if weight {
			quantized += elements(t.Shape)
		}
		if weight && q.SearchEvery > 0 { // copies of its inputs and outputs in host and plugin
			words += 2 * elements(t.Shape)
			for _, s := range q.Trained {
				words += 2 * elements(s.Shape)
			}
			for _, s := range q.State {
				words += 4 * elements(s.Shape)
			}
		}
		// Host and plugin each hold x, the gradient, the direction and two copies of the states.
		if t.Optimizer.Opaque {
			words += 6 * elements(t.Shape)
			for _, s := range t.Optimizer.State { // one copy is the state itself
				words += 3 * elements(s.Shape)
			}
		}
		if t.Optimizer.Evaluate != nil { // during an evaluation, or while a checkpoint is written
			words += elements(t.Shape)
		}
		if t.average(cfg) != nil { // a copy for an evaluation or a checkpoint
			words += elements(t.Shape)
		}
		if t.Optimizer.ProbeDue.First > 0 { // the second gradient
			words += elements(t.Shape)
		}
		if t.Optimizer.Probe != nil { // the point at which it is computed
			words += elements(t.Shape)
		}
		if t.RefreshDelay > 0 { // the inputs of a refresh are copied while it runs
			words += inputElements(t.Optimizer.Refresh)
		}
		if cfg.Method.ParetoEvery > 0 { // the gradient without quantization
			words += elements(t.Shape)
		}
	}
	if d := cfg.Diagnostics; d.Every > 0 {
		rows := min(d.Window, cfg.Train.Steps/d.Every)
		samples = min(float64(d.Coordinates), quantized) * float64(rows)
	}
	// Samples are two copies of a code and a residual; they are also copied for a checkpoint.
	return wordBytes * (words + 4*samples)
}

const wordBytes = 4

// workspaces returns the number of elements in the workspaces of refreshes, of which each thread
// computes one at a time.
func workspaces(programs *Programs, threads int) float64 {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var refreshes []float64
	for _, t := range programs.Tensors {
		first, later := t.Optimizer.FirstRefresh, t.Optimizer.Refresh
		refreshes = append(refreshes, max(refreshWorkspace(first), refreshWorkspace(later)))
	}
	slices.Sort(refreshes)
	all := 0.0
	for _, r := range refreshes[max(0, len(refreshes)-threads):] { // the largest
		all += r
	}
	return all
}

func elements(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}

// workspaceOf estimates how many elements an executor needs besides a program's inputs: the maximum
// size of live values.
func workspaceOf(p *program.Program) float64 {
	if p == nil {
		return 0
	}
	last := map[program.ID]int{}
	for i, n := range p.Nodes {
		for _, arg := range n.Args {
			last[arg] = i
		}
	}
	var now, most float64
	ends := map[int]float64{}
	for i, n := range p.Nodes {
		size := float64(n.Type.Size())
		now += size
		ends[max(i, last[program.ID(len(p.Inputs)+i)])] += size
		most = max(most, now)
		now -= ends[i]
	}
	return most
}

// refreshWorkspace estimates the workspace of a refresh in elements of 4 bytes. A refresh is
// computed in float64, on copies of its inputs, in 1.6 times the memory of live values.
func refreshWorkspace(p *program.Program) float64 {
	return 3.2 * (inputElements(p) + workspaceOf(p))
}

func inputElements(p *program.Program) float64 {
	n := 0.0
	if p != nil {
		for _, in := range p.Inputs {
			n += float64(in.Type.Size())
		}
	}
	return n
}
