package build

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// By is the source of the numbers in a [Report].
type By string

// The values of By.
const (
	ByPlan By = "plan" // for the CPU, from the compiled step
	ByXLA  By = "XLA"  // the GPU's compiler, from the compiled step
)

// Report compares the memory that a run needs with the available memory.
type Report struct {
	Bytes float64 `json:"bytes"` // total; per GPU
	Parts []Part  `json:"parts"` // in descending order, without items that are zero
	// Least tells that the run needs at least Bytes, which is too much: nothing more was determined.
	Least    bool    `json:"least,omitempty"`
	By       By      `json:"by"`
	Accuracy float64 `json:"accuracy"`          // relative error of the estimate; 0 by XLA
	Seconds  float64 `json:"seconds,omitempty"` // compilation time
	// Available is nil if the memory of the machine or the GPU is unknown.
	Available *Available `json:"available,omitempty"`
	Fits      bool       `json:"fits"`
	Changes   []string   `json:"changes,omitempty"` // settings to use less, if it does not fit

	less []string // settings that would use less memory
}

// Accuracy is the relative error of an estimate for the CPU. A run is refused only if the estimate
// exceeds the available memory even when it is reduced by this fraction.
const Accuracy = 0.2

// addressable is the size of a process's address space on current machines: 47 bits.
const addressable = 1 << 47

func newReport(by By, parts []Part, available *Available, less []string) *Report {
	r := &Report{By: by, Available: available, less: less}
	if by == ByPlan {
		r.Accuracy = Accuracy
	}
	for _, p := range parts {
		if r.Bytes += p.Bytes; p.Bytes > 0 {
			r.Parts = append(r.Parts, p)
		}
	}
	slices.SortStableFunc(r.Parts, func(a, b Part) int { return cmp.Compare(b.Bytes, a.Bytes) })
	r.Fits = r.Bytes < addressable &&
		(available == nil || r.Bytes*(1-r.Accuracy) <= float64(available.Bytes))
	if !r.Fits {
		r.Changes = less
	}
	return r
}

func remedies(cfg *config.Config, forward bool) (list []string) {
	if forward {
		return []string{"a smaller --batch, if the command has it", "a smaller model"}
	}
	if cfg.Model.Language() {
		list = append(list, "a smaller train.batch with a larger train.accumulate")
		if cfg.Train.Recompute != architecture.RecomputeBlocks {
			list = append(list, `train.recompute = "blocks"`)
		}
		list = append(list, "a smaller model.context")
	}
	if cfg.Diagnostics.Every > 0 {
		list = append(list, "a smaller diagnostics.coordinates or diagnostics.window")
	}
	if cfg.Device.Kind == device.CUDA {
		if cfg.Device.Count > 1 && cfg.Device.Shard != device.ShardFull {
			list = append(list, fmt.Sprintf("device.shard = %q", device.ShardFull))
		}
		list = append(list, "a larger device.memory_fraction, if nothing else uses the GPU")
	}
	return append(list, "a smaller model")
}

// Err returns a [*MemoryError] if the run does not fit.
func (r *Report) Err() error {
	if r.Fits {
		return nil
	}
	return &MemoryError{r}
}

// Summary returns a phrase for messages with the memory that the run needs.
func (r *Report) Summary() string {
	if r.By == ByXLA {
		return fmt.Sprintf("%s of memory on each GPU, as estimated by XLA", Bytes(r.Bytes))
	}
	if r.Least {
		return fmt.Sprintf("at least %s of memory", Bytes(r.Bytes))
	}
	return fmt.Sprintf("about %s of memory", Bytes(r.Bytes))
}

// Remedies returns a phrase for messages with settings that would use less memory.
func (r *Report) Remedies() string { return "to use less memory: " + strings.Join(r.less, "; or ") }

// MemoryError reports that memory is insufficient, and suggests settings that would use less.
type MemoryError struct{ *Report }

func (e *MemoryError) Error() string {
	limit := "no machine has that much"
	if e.Available != nil {
		limit = e.Available.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the run needs %s; %s", e.Summary(), limit)
	for _, p := range e.Parts {
		if p.Bytes >= 0.01*e.Bytes {
			fmt.Fprintf(&b, "\n  %s", p)
		}
	}
	fmt.Fprintf(&b, "\n%s", e.Remedies())
	return b.String()
}

// String returns the available memory and the limiting resource.
func (a Available) String() string {
	return fmt.Sprintf("%s are available (%s)", Bytes(float64(a.Bytes)), a.Limit)
}

// Bytes formats a number of bytes with a unit.
func Bytes(n float64) string {
	const units = "kMGTPEZY"
	if n < 999.5 {
		return fmt.Sprintf("%.0f B", n)
	}
	at := 1
	for n /= 1000; n >= 999.5 && at < len(units); n /= 1000 { // 999.5 would be formatted as 1e+03
		at++
	}
	return fmt.Sprintf("%.3g %cB", n, units[at-1])
}

// CheckMemory returns a [*MemoryError] if a run on the CPU is estimated to need more memory than is
// available or, with train.memory_check = "off", than any machine has. It compiles the programs of
// c that need the most, unless what it needs at least is too much. On a GPU, memory of a training
// is checked after all are compiled.
func CheckMemory(cfg *config.Config, programs *Programs, c *step.Compiled) error {
	if cfg.Device.Kind != device.CPU {
		return nil
	}
	// Make the garbage collector run more often when memory gets scarce, unless the user has set a
	// limit (GOMEMLIMIT).
	if a := machineFor(cfg); a != nil && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(0.9 * float64(a.Bytes)))
	}
	if programs.noAttention { // only weights are read
		return leastReport(cfg, programs, c).Err()
	}
	r, err := compiledReport(cfg, programs, c)
	if err != nil {
		return err
	}
	return r.Err()
}

// leastReport returns what a run on the CPU needs at least: its state and, of its tokens, the
// residual stream, which a training keeps at each block.
func leastReport(cfg *config.Config, programs *Programs, c *step.Compiled) *Report {
	m := step.Memory{State: c.StateBytes()}
	if s := cfg.Model; s.Language() && programs.Piece == 0 && !programs.noAttention {
		m.Temporary = 4 * int64(cfg.Train.Batch) * int64(s.Context) * int64(s.Width)
		if !programs.Forward {
			m.Temporary *= int64(s.Layers)
		}
	}
	return cpuReport(cfg, programs, m)
}

// machineFor returns the memory available to a run on the CPU, or nil if it is unknown or the
// memory check is off.
func machineFor(cfg *config.Config) *Available {
	a, known := machineMemory()
	if cfg.Train.MemoryCheck == "off" || !known {
		return nil
	}
	return &a
}

// memoryNeed is a function that determines how much memory a run needs.
type memoryNeed = func(*config.Config, model.Model) (*Report, error)

// needOn returns a function that compiles the step for a device.
func needOn(dev *engine.Device, programs *Programs) memoryNeed {
	return func(cfg *config.Config, m model.Model) (*Report, error) {
		if dev.Kind() != device.CPU && slices.ContainsFunc(programs.computing,
			func(p *computing) bool { return len(p.tensors) > 0 }) {
			return nil, fmt.Errorf("%w if the optimizer runs in its plugin's process", errUnknown)
		}
		plan, err := Plan(cfg, m, programs)
		if err != nil {
			return nil, err
		}
		c, err := step.Compile(dev, programs.unstarted(plan))
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return compiledReport(cfg, programs, c)
	}
}

// unstarted returns a plan that can be compiled without the processes of plugins that compute.
func (p *Programs) unstarted(plan step.Plan) step.Plan {
	plan.Opaque = map[string]step.Opaque{}
	for _, part := range p.computing {
		for _, t := range part.tensors {
			plan.Opaque[t.Name] = struct{ step.Opaque }{}
		}
	}
	return plan
}

// Of the memory that a run on the CPU needs besides what its programs need, as measured in
// TestEstimate.
const (
	itself = 75e6 // code, plugins' programs, the Go runtime
	// pooled is the fraction by which memory that is kept for reuse exceeds what is in use.
	pooled = 0.12
)

// cpuReport adds to the memory of the programs what is beside them.
func cpuReport(cfg *config.Config, programs *Programs, m step.Memory) *Report {
	return newReport(ByPlan, []Part{
		{"the program itself", itself},
		{stateParts, float64(m.State)},
		{temporaryParts, float64(m.Temporary)},
		{"what its programs pass on and read: gradients, quantized weights, tokens, caches, a teacher",
			float64(m.Other)},
		{"memory that is kept for reuse", pooled * float64(m.Total())},
		{"refreshes, searches, samples, and what plugins hold", beside(cfg, programs)},
	}, machineFor(cfg), remedies(cfg, programs.Forward))
}

// Parts of the memory of programs.
const (
	stateParts     = "parameters, and states of optimizers and quantizers"
	temporaryParts = "values inside a step: activations, gradients, quantized weights"
)

func gpuReport(cfg *config.Config, forward bool, dev *engine.Device, m step.Memory) *Report {
	var available *Available
	if bytes, ok := dev.MemoryLimit(); ok {
		fraction := cmp.Or(cfg.Device.MemoryFraction, device.MemoryFraction)
		limit := fmt.Sprintf("device.memory_fraction = %g of each GPU", fraction)
		available = &Available{Bytes: bytes, Limit: limit}
	}
	return newReport(ByXLA, []Part{
		{stateParts, float64(m.State)},
		{temporaryParts, float64(m.Temporary)},
		{"its code, and what else it reads and returns", float64(m.Other)},
	}, available, remedies(cfg, forward))
}

var errUnknown = errors.New("XLA does not report the memory that a step needs")

// compiledReport compiles the programs of c that need the most memory, and returns what a run
// needs.
func compiledReport(cfg *config.Config, programs *Programs, c *step.Compiled) (*Report, error) {
	if c.Device().SharesMemory() { // programs of long contexts take long to compile
		if r := leastReport(cfg, programs, c); !r.Fits {
			r.Least = true
			return r, nil
		}
	}
	began := time.Now()
	determine := c.TrainingMemory
	if programs.Forward {
		determine = func() (step.Memory, bool, error) { return c.EvaluationMemory(programs.Piece > 0) }
	}
	need, ok, err := determine()
	if err == nil && !ok {
		err = errUnknown
	}
	if err != nil {
		return nil, err
	}
	r := reportOf(cfg, programs, c.Device(), need)
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

func reportOf(cfg *config.Config, programs *Programs, dev *engine.Device, m step.Memory) *Report {
	if dev.SharesMemory() {
		return cpuReport(cfg, programs, m)
	}
	return gpuReport(cfg, programs.Forward, dev, m)
}

// report returns the memory that the compiled step needs, or nil if it is unknown.
func (b *Runtime) report() *Report {
	if b.Compiled == nil {
		return nil
	}
	need, ok := b.Compiled.Memory()
	if !ok {
		return nil
	}
	return reportOf(b.req.Config, b.Programs, b.Device, need)
}

// Explain adds to an out-of-memory error of a GPU how much memory the run needs, and settings that
// would use less. It returns other errors unchanged.
func (b *Runtime) Explain(err error) error {
	_, full := errors.AsType[*engine.MemoryError](err)
	if !full || b.Device == nil || b.Device.SharesMemory() {
		return err
	}
	r := b.report()
	if r == nil {
		return err
	}
	available := "the available memory is not known"
	if r.Available != nil {
		available = r.Available.String()
	}
	return fmt.Errorf("%w\nthe GPU is out of memory; the run needs %s; %s\n%s",
		err, r.Summary(), available, r.Remedies())
}

// ResolveRecompute resolves train.recompute = "auto" to the setting that recomputes least among
// those that fit, or to "blocks" if none does, and returns the changed configuration and its model.
// An evaluation has no backward pass, so that there is nothing to recompute.
func ResolveRecompute(
	cfg *config.Config, m model.Model, programs *Programs, dev *engine.Device,
) (*config.Config, model.Model, error) {
	cfg, m, _, err := decide(cfg, m, programs, needOn(dev, programs))
	return cfg, m, err
}

// decide also returns the memory that the setting needs, or nil if it was not determined.
func decide(
	cfg *config.Config, m model.Model, programs *Programs, need memoryNeed,
) (_ *config.Config, _ model.Model, r *Report, err error) {
	if cfg.Train.Recompute != config.RecomputeAuto {
		return cfg, m, nil, nil
	}
	decided := *cfg
	for _, decided.Train.Recompute = range []architecture.Recompute{
		architecture.RecomputeNone, architecture.RecomputeAttention, architecture.RecomputeBlocks,
	} {
		if m, err = Model(&decided); err != nil {
			return nil, nil, nil, err
		}
		r = nil
		if programs.Forward || decided.Train.Recompute == architecture.RecomputeBlocks {
			break
		}
		if r, err = need(&decided, m); err != nil && !errors.Is(err, errUnknown) {
			return nil, nil, nil, err
		}
		if r == nil || r.Available == nil || r.Bytes <= float64(r.Available.Bytes) {
			break
		}
	}
	return &decided, m, r, nil
}

// Memory returns how much memory a run needs, even if it does not fit: an estimate for the CPU, or
// what XLA reports for the compiled step on a GPU. warn is used as by [Device].
func Memory(
	cfg *config.Config, m model.Model, programs *Programs, warn Warn,
) (_ *Report, err error) {
	other := *cfg
	other.Device.Preallocate = "off" // programs are compiled, but only tuning trials run
	other.Train.MemoryCheck = "on"
	dev, err := Device(&other, warn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	need := needOn(dev, programs)
	cfg, m, r, err := decide(&other, m, programs, need)
	if err != nil || r != nil {
		return r, err
	}
	return need(cfg, m)
}
