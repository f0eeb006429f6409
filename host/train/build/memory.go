package build

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// CheckMemory refuses a run that is estimated to need more memory than the machine has, before
// anything large is allocated. With train.memory_check = "off", and of a GPU, which is compared
// when it is open, only sizes that no machine has are refused.
func CheckMemory(cfg *config.Config, m model.Model, programs *Programs) error {
	available := machineFor(cfg)
	r, err := estimate(cfg, m, programs, available)
	if err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return err
	}
	if available != nil {
		limitHeap(*available)
	}
	machine, known := machineMemory()
	if cfg.Train.MemoryCheck == "off" || !known {
		return nil
	}
	return checkHost(r.sizes, machine)
}

// machineFor is the memory that a run on the CPU is compared with; nil: that of any machine.
func machineFor(cfg *config.Config) *Available {
	a, known := machineMemory()
	if cfg.Train.MemoryCheck == "off" || cfg.Device.Kind != device.CPU || !known {
		return nil
	}
	return &a
}

// gpuMemory is what a device lets programs take; nil if it is not known.
func gpuMemory(cfg *config.Config, dev *engine.Device) *Available {
	bytes, ok := dev.MemoryLimit()
	if !ok {
		return nil
	}
	fraction := cmp.Or(cfg.Device.MemoryFraction, device.MemoryFraction)
	return &Available{Bytes: bytes, Limit: fmt.Sprintf("device.memory_fraction = %g of each GPU", fraction)}
}

// estimate is the report, from sizes alone, of the phase that needs most.
func estimate(cfg *config.Config, m model.Model, programs *Programs, available *Available) (*Report, error) {
	return largestReport(programs, func(i int, p *Programs) (*Report, error) {
		s, err := sizesOf(cfg, m, p)
		return NewReport(s, available), err
	})
}

// largestReport is the report of the phase that needs most.
func largestReport(programs *Programs, of func(i int, p *Programs) (*Report, error)) (most *Report, err error) {
	for i, p := range programs.Phases() {
		r, err := of(i, p)
		if err != nil {
			return nil, err
		}
		if most == nil || r.Bytes > most.Bytes {
			most = r
		}
	}
	return most, nil
}

// gpuReport is what a run needs of its GPU: by XLA as far as its steps are compiled, otherwise by
// the estimate.
func (b *Built) gpuReport() (*Report, error) {
	available := gpuMemory(b.req.Config, b.Device)
	if len(b.phases) == 0 {
		return estimate(b.req.Config, b.req.Model, b.Programs, available)
	}
	return largestReport(b.Programs, func(i int, p *Programs) (*Report, error) {
		s, err := sizesOf(b.req.Config, b.req.Model, p)
		if err != nil {
			return nil, err
		}
		if need, ok := b.phases[i].Memory(); ok {
			return compiledReport(s, need, available), nil
		}
		return NewReport(s, available), nil
	})
}

func (b *Built) checkDevice() error {
	if b.req.Config.Train.MemoryCheck == "off" || b.Device.SharesMemory() {
		return nil
	}
	r, err := b.gpuReport()
	if err != nil || r.Available == nil {
		return err
	}
	return r.Err()
}

// Explain adds to an error of a GPU that has no memory left what the run needs, and what needs less.
func (b *Built) Explain(err error) error {
	if _, full := errors.AsType[*engine.MemoryError](err); !full || b.Device == nil || b.Device.SharesMemory() {
		return err
	}
	r, failed := b.gpuReport()
	if failed != nil {
		return err
	}
	there := "how much there is, it does not tell"
	if r.Available != nil {
		there = r.Available.String()
	}
	return fmt.Errorf("%w\nThe GPU had no memory left. The run needs %s; %s; nvidia-smi lists what else uses the GPU.\n%s",
		err, r.Says(), there, r.NeedsLess())
}

// decide returns the configuration and its model with train.recompute = "auto" decided: the least is
// computed again with which the run fits, and blocks where that is too little. What is available
// may not be known.
func decide(cfg *config.Config, m model.Model, programs *Programs, available *Available) (*config.Config, model.Model, error) {
	if cfg.Train.Recompute != config.RecomputeAuto {
		return cfg, m, nil
	}
	decided := *cfg
	for _, decided.Train.Recompute = range []architecture.Recompute{architecture.RecomputeNone, architecture.RecomputeAttention, architecture.RecomputeBlocks} {
		r, err := estimate(&decided, m, programs, available)
		if err != nil {
			return nil, nil, err
		}
		if available == nil || r.Bytes <= float64(available.Bytes) {
			break
		}
	}
	m, err := Model(&decided)
	return &decided, m, err
}

// Memory returns what a run needs, whether or not there is that much memory. On a GPU that can be
// opened, XLA compiles the step and says it; warn is as for [Device]. Otherwise it is the estimate
// with which runs are refused, with the reason.
func Memory(cfg *config.Config, m model.Model, programs *Programs, warn func(message string, details ...any)) (*Report, error) {
	cfg, m, err := decide(cfg, m, programs, machineFor(cfg))
	if err != nil {
		return nil, err
	}
	var reason error
	if cfg.Device.Kind == device.CUDA {
		var r *Report
		if r, reason = compiledMemory(cfg, m, programs, warn); reason == nil {
			return r, nil
		}
	}
	unchecked := *cfg
	unchecked.Train.MemoryCheck = "on"
	r, err := estimate(cfg, m, programs, machineFor(&unchecked))
	if err == nil && reason != nil {
		r.Reason = reason.Error()
	}
	return r, err
}

// compiledMemory has XLA compile the step of each phase, on the device of the configuration, and
// returns what it says.
func compiledMemory(cfg *config.Config, m model.Model, programs *Programs, warn func(message string, details ...any)) (_ *Report, err error) {
	if len(programs.opaque) > 0 {
		return nil, errors.New("it is not asked about optimizers that are no programs")
	}
	other := *cfg
	other.Device.Preallocate = "off" // programs are compiled, and only trials run
	dev, err := Device(&other, warn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return largestReport(programs, func(_ int, p *Programs) (*Report, error) {
		plan, err := Plan(cfg, m, p)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		need, ok, err := step.CompiledMemory(dev, plan)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errors.New("the PJRT plugin does not say what a program needs")
		}
		seconds := time.Since(began).Seconds()
		s, err := sizesOf(cfg, m, p)
		if err != nil {
			return nil, err
		}
		r := compiledReport(s, need, gpuMemory(cfg, dev))
		r.Seconds = seconds
		return r, nil
	})
}

// sizesOf gathers the sizes that memory depends on.
func sizesOf(cfg *config.Config, m model.Model, programs *Programs) (Sizes, error) {
	out := configuredSizes(cfg, programs.Forward, programs.Piece)
	for _, p := range m.Params() {
		if q, ok := programs.Weights[p.Name]; ok {
			out.Quantized += elements(p.Dims)
			if passes.EndingRotation(q.Program, spec.OutputValue) > 1 {
				out.Rotated += elements(p.Dims)
			}
			// The state, and what a search reads and writes, for the host and for the plugin.
			if q.SearchEvery > 0 && !programs.Forward {
				out.States += 2 * elements(p.Dims)
				for _, s := range q.Trained {
					out.States += 2 * elements(s.Shape)
				}
				for _, s := range q.State {
					out.States += 5 * elements(s.Shape)
				}
			}
		}
	}
	for _, t := range programs.Tensors {
		out.Parameters += elements(t.Shape)
		for _, s := range t.Optimizer.State {
			n := elements(s.Shape) * float64(s.Storage.Bytes()) / float64(sdk.StoreFloat32.Bytes())
			out.States += n
			if len(s.Shape) > 1 {
				out.Offloadable += n
			}
		}
		// X, gradient, direction and two copies of the states, for the host and for the plugin.
		if t.Optimizer.Opaque {
			out.States += 6 * elements(t.Shape)
			for _, s := range t.Optimizer.State { // one is the state itself
				out.States += 3 * elements(s.Shape)
			}
		}
		if t.Optimizer.Evaluate != nil { // during an evaluation, or while a checkpoint is written
			out.States += elements(t.Shape)
		}
		if t.average(cfg) != nil && !programs.Forward {
			out.States += 2 * elements(t.Shape) // the average, and as above
			if len(t.Shape) > 1 {
				out.Offloadable += elements(t.Shape)
			}
		}
		if t.Optimizer.ProbeDue.First > 0 { // the second gradient
			out.States += elements(t.Shape)
		}
		if t.Optimizer.Probe != nil { // the point where it is taken
			out.States += elements(t.Shape)
		}
		if t.RefreshDelay > 0 { // what a refresh reads is copied while it is under way
			out.States += inputElements(t.Optimizer.Refresh)
		}
		if _, quantized := programs.Weights[t.Name]; quantized && !programs.Forward {
			for _, s := range cfg.Method.Method().State(t.Shape) {
				out.States += elements(s.Shape)
				if len(s.Shape) > 1 {
					out.Offloadable += elements(s.Shape)
				}
			}
		}
	}
	if d := cfg.Diagnostics; d.Every > 0 && !programs.Forward {
		out.Samples = min(float64(d.Coordinates), out.Quantized) * float64(min(d.Window, cfg.Train.Steps/d.Every))
	}
	out.Workspace = workspaces(programs, cfg.Device.Threads)
	if programs.Forward {
		return out, nil
	}
	if out.GPU != nil {
		if err := addResiduals(&out, programs); err != nil {
			return out, err
		}
	}
	d, err := distillation(cfg)
	if d != nil {
		n := d.Teacher.(model.Network).Network()
		out.Teacher = Teacher{Parameters: float64(architecture.CountParams(d.Teacher.Params(), nil)),
			Width: n.Width, HeadWidth: n.Heads * n.HeadSize, Hidden: n.Hidden, Heads: n.Heads}
	}
	if cfg.Method.ParetoEvery > 0 {
		out.Measured = out.Parameters
	}
	return out, err
}

// addResiduals counts what quantizers of activations keep for the backward pass, beside the values that products read.
func addResiduals(out *Sizes, programs *Programs) error {
	counted := map[string][3]float64{} // by program
	for _, q := range programs.Activations {
		key := fmt.Sprint(spec.Hashes(q.Programs()))
		n, ok := counted[key]
		if !ok {
			parts, err := q.Split()
			if err != nil {
				return err
			}
			n[2] = float64(q.Program.Inputs[0].Type.Size())
			for _, r := range parts.Residuals {
				if r.Type.DType == program.Bool {
					n[0] += float64(r.Type.Size())
				} else {
					n[1] += float64(r.Type.Size())
				}
			}
			counted[key] = n
		}
		out.Masks, out.Residuals, out.Activations = out.Masks+n[0], out.Residuals+n[1], out.Activations+n[2]
	}
	return nil
}

// configuredSizes are the sizes that follow from the configuration alone.
func configuredSizes(cfg *config.Config, forward bool, piece int) Sizes {
	out := Sizes{Batch: ReplicaBatch(cfg), Replicas: cfg.Device.Count, Accumulate: cfg.Train.Accumulate, Context: cfg.Model.Context, Forward: forward, Piece: piece}
	out.Offload = cfg.Device.Offload == device.OffloadStates && !forward
	switch cfg.Device.Shard {
	case device.ShardStates, device.ShardGradients:
		out.StateShards = cfg.Device.Count
	case device.ShardFull:
		out.StateShards, out.ParameterShards = cfg.Device.Count, cfg.Device.Count
	}
	if cfg.Device.Kind == device.CUDA {
		half := cfg.Device.Precision == device.BFloat16
		out.GPU = &GPU{BFloat16: half, Kernels: half && cfg.Device.Kernels != device.GraphKernels,
			FusedAttention: half && cfg.Device.Attention != device.PlainAttention}
	}
	if cfg.Model.Language() {
		out.Layers, out.Width, out.Hidden, out.Heads = cfg.Model.Layers, cfg.Model.Width, cfg.Model.Hidden, cfg.Model.Heads
		out.HeadWidth, out.KeyWidth = cfg.Model.Heads*cfg.Model.HeadSize, cfg.Model.KVHeads*cfg.Model.HeadSize
		out.Normed = cfg.Model.Kind != architecture.KindLlama
		out.Vocabulary, out.Recompute = cfg.Model.Vocab, cfg.Train.Recompute
	}
	return out
}

// workspaces is the memory that optimizers work with: each of the threads that update tensors keeps some for every shape,
// and computes one refresh at a time.
func workspaces(programs *Programs, threads int) float64 {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	updates, seen, refreshes := 0.0, map[string]bool{}, []float64{}
	for _, t := range programs.Tensors {
		if key := fmt.Sprint(t.Table, t.Shape); !seen[key] {
			seen[key] = true
			o := t.Optimizer // the memory that the programs of its updates need while they run
			updates += max(workspaceOf(o.Init), workspaceOf(o.Observe), workspaceOf(o.Update), workspaceOf(o.Collect), workspaceOf(o.Probe), workspaceOf(o.Evaluate), workspaceOf(t.Constrain))
		}
		refreshes = append(refreshes, max(refreshWorkspace(t.Optimizer.FirstRefresh), refreshWorkspace(t.Optimizer.Refresh)))
	}
	slices.Sort(refreshes)
	all := float64(threads) * updates
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
