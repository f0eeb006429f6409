package build

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/rotation"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/memory"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// CheckMemory refuses a run that is estimated to need more memory than the machine has,
// before anything large is allocated. On a GPU, which [Built.Build] compares when it has one, and with train.memory_check = "off",
// only sizes that no machine has are refused.
func CheckMemory(cfg *config.Config, m model.Model, programs *Programs) error {
	available := checkedMemory(cfg)
	if err := checkMemory(cfg, m, programs, available); err != nil {
		return err
	}
	if available != nil {
		memory.Limit(*available)
	}
	return checkHost(cfg, m, programs)
}

// checkHost refuses states in a machine's memory that has less.
func checkHost(cfg *config.Config, m model.Model, programs *Programs) error {
	machine, known := memory.Machine()
	if cfg.Device.Offload != device.OffloadStates || cfg.Train.MemoryCheck == "off" || !known {
		return nil
	}
	for _, p := range programs.Phases() {
		sizes, err := memoryModel(cfg, m, p)
		if err == nil {
			err = memory.CheckHost(sizes, &machine)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMemory refuses what is estimated to need more than is available in one of the phases.
func checkMemory(cfg *config.Config, m model.Model, programs *Programs, available *memory.Available) error {
	for _, p := range programs.Phases() {
		sizes, err := memoryModel(cfg, m, p)
		if err == nil {
			err = memory.Check(sizes, available)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDevice refuses a run that needs more than its GPU lets it take: by the estimate, as long as nothing is compiled, or by what
// XLA says of the steps that are.
func (b *Built) checkDevice() error {
	if b.req.Config.Train.MemoryCheck == "off" || b.Device.SharesMemory() {
		return nil
	}
	available := deviceMemory(b.req.Config, b.Device)
	if available == nil {
		return nil
	}
	if len(b.phases) == 0 {
		return checkMemory(b.req.Config, b.req.Model, b.Programs, available)
	}
	reports, err := b.compiledReports()
	for _, r := range reports {
		err = cmp.Or(err, r.Err())
	}
	return err
}

// compiledReports says what the steps of the phases need by XLA, of what is compiled.
func (b *Built) compiledReports() (list []*memory.Report, err error) {
	for i, p := range b.Programs.Phases() {
		need, ok := b.phases[i].Memory()
		if !ok {
			continue
		}
		sizes, err := memoryModel(b.req.Config, b.req.Model, p)
		if err != nil {
			return nil, err
		}
		list = append(list, memory.ByXLA(sizes, asCompiled(need), deviceMemory(b.req.Config, b.Device)))
	}
	return list, nil
}

func asCompiled(m step.Memory) memory.Compiled {
	return memory.Compiled{State: float64(m.State), Temporary: float64(m.Temporary), Other: float64(m.Other), Host: float64(m.Host)}
}

// Explain adds to an error of a GPU that has no memory left what the run needs, what there is, and what would need less.
func (b *Built) Explain(err error) error {
	if _, full := errors.AsType[*engine.MemoryError](err); !full || b.Device == nil || b.Device.SharesMemory() {
		return err
	}
	available := deviceMemory(b.req.Config, b.Device)
	reports, failed := b.compiledReports()
	if failed != nil || len(reports) == 0 {
		sizes, failed := memoryModel(b.req.Config, b.req.Model, b.Programs)
		if failed != nil {
			return err
		}
		reports = []*memory.Report{memory.NewReport(sizes, available)}
	}
	most := most(reports)
	there := "how much there is, it does not tell"
	if available != nil {
		there = available.String()
	}
	return fmt.Errorf("%w\nThe GPU had no memory left. The run needs %s; %s; nvidia-smi lists what else uses the GPU.\nWhat needs less: %s",
		err, most.Says(), there, strings.Join(append(most.Remedies(), "a smaller model"), "; or "))
}

// most is the report of what needs most.
func most(reports []*memory.Report) *memory.Report {
	return slices.MaxFunc(reports, func(a, b *memory.Report) int { return cmp.Compare(a.Bytes, b.Bytes) })
}

// decide returns the configuration and its model with train.recompute = "auto" decided: the least is computed again with which no more memory is
// needed than is available, and blocks where that is too little for all. What is available may not be known.
func decide(cfg *config.Config, m model.Model, programs *Programs, available *memory.Available) (*config.Config, model.Model, error) {
	if cfg.Train.Recompute != config.RecomputeAuto {
		return cfg, m, nil
	}
	decided := *cfg
	for _, decided.Train.Recompute = range []architecture.Recompute{architecture.RecomputeNone, architecture.RecomputeAttention, architecture.RecomputeBlocks} {
		most := 0.0
		for _, p := range programs.Phases() {
			sizes, err := memoryModel(&decided, m, p)
			if err != nil {
				return nil, nil, err
			}
			most = max(most, memory.Estimate(sizes).Total())
		}
		if available == nil || most <= float64(available.Bytes) {
			break
		}
	}
	m, err := Model(&decided)
	return &decided, m, err
}

// manyTensors is more than published models have. To ask plugins about them takes seconds, and memory.
const manyTensors = 2000

// CheckSizes refuses a run of very many tensors whose model alone needs too much memory, before plugins are asked about
// each of them. Of others, CheckMemory can say all that they need.
func CheckSizes(req Request) error {
	if len(req.Model.Params()) <= manyTensors {
		return nil
	}
	sizes := modelSizes(req.Config, req.Forward, req.Piece)
	for _, p := range req.Model.Params() {
		sizes.Parameters += elements(p.Dims)
	}
	return memory.CheckPart(sizes, checkedMemory(req.Config))
}

// checkedMemory is the memory that a run is compared with; nil: that of any machine.
func checkedMemory(cfg *config.Config) *memory.Available {
	if cfg.Train.MemoryCheck == "off" {
		return nil
	}
	return availableMemory(cfg)
}

// availableMemory is what the device of a run has; nil: that is not known. Of GPUs it is not.
func availableMemory(cfg *config.Config) *memory.Available {
	if cfg.Device.Kind != device.CPU {
		return nil
	}
	if a, ok := memory.Machine(); ok {
		return &a
	}
	return nil
}

// Memory returns what a run needs, whether or not there is that much memory. On a GPU that can be opened, XLA compiles the step
// and says it; warn is as for [Device]. Otherwise it is that of [EstimateMemory], with the reason.
func Memory(cfg *config.Config, m model.Model, programs *Programs, warn func(message string, details ...any)) (*memory.Report, error) {
	cfg, m, err := decide(cfg, m, programs, checkedMemory(cfg))
	if err != nil {
		return nil, err
	}
	if cfg.Device.Kind != device.CUDA {
		return EstimateMemory(cfg, m, programs)
	}
	reports, reason := compiledMemory(cfg, m, programs, warn)
	if reason == nil {
		return mostOf(cfg, programs, reports), nil
	}
	r, err := EstimateMemory(cfg, m, programs)
	if err == nil {
		r.Reason = reason.Error()
	}
	return r, err
}

// EstimateMemory returns the estimate, from sizes alone, with which runs are refused.
func EstimateMemory(cfg *config.Config, m model.Model, programs *Programs) (*memory.Report, error) {
	var reports []*memory.Report
	for _, p := range programs.Phases() {
		sizes, err := memoryModel(cfg, m, p)
		if err != nil {
			return nil, err
		}
		reports = append(reports, memory.NewReport(sizes, availableMemory(cfg)))
	}
	return mostOf(cfg, programs, reports), nil
}

// mostOf is the report of the phase that needs most, and lists all if there are several.
func mostOf(cfg *config.Config, programs *Programs, reports []*memory.Report) *memory.Report {
	r := most(reports)
	if len(reports) > 1 {
		r.Phases = phasesOf(cfg, programs, reports)
	}
	return r
}

// phasesOf lists the phases with what each needs.
func phasesOf(cfg *config.Config, programs *Programs, reports []*memory.Report) (phases []memory.Phase) {
	list := programs.Phases()
	for i, p := range list {
		phase := memory.Phase{From: p.From, To: cfg.Train.Steps, Bytes: reports[i].Bytes, Weights: len(p.Weights), Activations: len(p.Activations), Backward: len(p.Backward)}
		if i+1 < len(list) {
			phase.To = list[i+1].From - 1
		}
		phases = append(phases, phase)
	}
	return phases
}

// errNotTold is the reason why there is no report of XLA on a device that does not tell.
var errNotTold = errors.New("the PJRT plugin does not say what a program needs")

// compiledMemory has XLA compile the step of each phase, on the device of the configuration, and returns what it says.
func compiledMemory(cfg *config.Config, m model.Model, programs *Programs, warn func(message string, details ...any)) (reports []*memory.Report, err error) {
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
	for _, p := range programs.Phases() {
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
			return nil, errNotTold
		}
		compiled := asCompiled(need)
		compiled.Seconds = time.Since(began).Seconds()
		sizes, err := memoryModel(cfg, m, p)
		if err != nil {
			return nil, err
		}
		reports = append(reports, memory.ByXLA(sizes, compiled, deviceMemory(cfg, dev)))
	}
	return reports, nil
}

// deviceMemory is what a device lets programs take; nil: it does not tell.
func deviceMemory(cfg *config.Config, dev *engine.Device) *memory.Available {
	bytes, ok := dev.MemoryLimit()
	if !ok {
		return nil
	}
	fraction := cmp.Or(cfg.Device.MemoryFraction, device.MemoryFraction)
	return &memory.Available{Bytes: bytes, Limit: fmt.Sprintf("device.memory_fraction = %g of each GPU", fraction), Fraction: fraction}
}

// memoryModel gathers the sizes that memory depends on.
func memoryModel(cfg *config.Config, m model.Model, programs *Programs) (memory.Model, error) {
	out := modelSizes(cfg, programs.Forward, programs.Piece)
	for _, p := range m.Params() {
		if q, ok := programs.Weights[p.Name]; ok {
			out.Quantized += elements(p.Dims)
			if rotation.Ending(q.Program, spec.OutputValue) > 1 {
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
			out.States += memory.Inputs(t.Optimizer.Refresh)
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
		out.Teacher = memory.Teacher{Parameters: float64(architecture.CountParams(d.Teacher.Params(), nil)),
			Width: n.Width, HeadWidth: n.Heads * n.HeadSize, Hidden: n.Hidden, Heads: n.Heads}
	}
	if cfg.Method.ParetoEvery > 0 {
		out.Measured = out.Parameters
	}
	return out, err
}

// addResiduals counts what quantizers of activations keep for the backward pass, beside the values that products read.
func addResiduals(out *memory.Model, programs *Programs) error {
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

// modelSizes are the sizes that follow from the configuration alone.
func modelSizes(cfg *config.Config, forward bool, piece int) memory.Model {
	out := memory.Model{Batch: ReplicaBatch(cfg), Replicas: cfg.Device.Count, Accumulate: cfg.Train.Accumulate, Context: cfg.Model.Context, Forward: forward, Piece: piece}
	out.Offload = cfg.Device.Offload == device.OffloadStates && !forward
	switch cfg.Device.Shard {
	case device.ShardStates, device.ShardGradients:
		out.StateShards = cfg.Device.Count
	case device.ShardFull:
		out.StateShards, out.ParameterShards = cfg.Device.Count, cfg.Device.Count
	}
	if cfg.Device.Kind == device.CUDA {
		half := cfg.Device.Precision == device.BFloat16
		out.GPU = &memory.GPU{BFloat16: half, Kernels: half && cfg.Device.Kernels != device.GraphKernels,
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
			updates += max(memory.Workspace(o.Init), memory.Workspace(o.Observe), memory.Workspace(o.Update), memory.Workspace(o.Collect), memory.Workspace(o.Probe), memory.Workspace(o.Evaluate), memory.Workspace(t.Constrain))
		}
		refreshes = append(refreshes, max(memory.RefreshWorkspace(t.Optimizer.FirstRefresh), memory.RefreshWorkspace(t.Optimizer.Refresh)))
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
