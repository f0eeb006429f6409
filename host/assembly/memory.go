package assembly

import (
	"fmt"
	"runtime"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/memory"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
)

// CheckMemory refuses a run that by an estimate needs more memory than the machine has,
// before anything large is allocated. On a GPU, and with train.memory_check = "off", only
// sizes that no machine has are refused.
func CheckMemory(cfg *config.Config, m model.Model, programs *Programs) error {
	available := availableMemory(cfg)
	if cfg.Train.MemoryCheck == "off" {
		available = nil
	}
	sizes, err := memoryModel(cfg, m, programs)
	if err != nil {
		return err
	}
	if err := memory.Check(sizes, available); err != nil {
		return err
	}
	if available != nil {
		memory.Limit(*available)
	}
	return nil
}

// availableMemory is what the device of a run has; nil: that is not known. Of GPUs it is not.
func availableMemory(cfg *config.Config) *memory.Available {
	if cfg.Device.Kind != engine.CPU {
		return nil
	}
	if a, ok := memory.Machine(); ok {
		return &a
	}
	return nil
}

// Memory estimates what a run needs, as CheckMemory does, whatever there is.
func Memory(cfg *config.Config, m model.Model, programs *Programs) (*memory.Report, error) {
	sizes, err := memoryModel(cfg, m, programs)
	if err != nil {
		return nil, err
	}
	return memory.NewReport(sizes, availableMemory(cfg)), nil
}

// memoryModel gathers the sizes that memory depends on.
func memoryModel(cfg *config.Config, m model.Model, programs *Programs) (memory.Model, error) {
	out := memory.Model{Batch: ReplicaBatch(cfg), Context: cfg.Model.Context, Forward: programs.Forward, Piece: programs.Piece}
	if cfg.Model.Language() {
		out.Layers, out.Width, out.Hidden, out.Heads = cfg.Model.Layers, cfg.Model.Width, cfg.Model.Hidden, cfg.Model.Heads
		out.KeyWidth = cfg.Model.KVHeads * cfg.Model.HeadSize
		out.Vocabulary, out.Recompute = cfg.Model.Vocab, cfg.Train.Recompute == config.RecomputeBlocks
	}
	for _, p := range m.Params() {
		if _, ok := programs.Weights[p.Name]; ok {
			out.Quantized += elements(p.Dims)
		}
	}
	for _, t := range programs.Tensors {
		out.Parameters += elements(t.Shape)
		for _, s := range t.Optimizer.State {
			out.States += elements(s.Shape)
		}
		if _, quantized := programs.Weights[t.Name]; quantized && cfg.Method.Name == cage.MethodLOTION {
			out.States += elements(t.Shape)
		}
	}
	if d := cfg.Diagnostics; d.Every > 0 && !programs.Forward {
		out.Samples = min(float64(d.Coordinates), out.Quantized) * float64(min(d.Window, cfg.Train.Steps/d.Every))
	}
	out.Workspace = workspaces(programs, cfg.Device.Threads)
	if programs.Forward {
		return out, nil
	}
	d, err := distillation(cfg)
	if d != nil {
		out.Teacher = float64(model.CountParams(d.Teacher.Params(), nil))
	}
	return out, err
}

// workspaces is the memory of the threads that update tensors: each keeps some for every
// shape.
func workspaces(programs *Programs, threads int) float64 {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	sum, seen := 0.0, map[string]bool{}
	for _, t := range programs.Tensors {
		if key := fmt.Sprint(t.Table, t.Shape); !seen[key] {
			seen[key] = true
			sum += workspace(t.Optimizer)
		}
	}
	return float64(threads) * sum
}

// workspace is the memory that the programs of one tensor need while they run.
func workspace(o sdk.OptimizerProgram) float64 {
	most := 0.0
	for _, p := range o.Programs() {
		most = max(most, memory.Workspace(p))
	}
	return most
}

func elements(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}
