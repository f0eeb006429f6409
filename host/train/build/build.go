// Package build turns a checked configuration into the parts used by training, evaluation and
// benchmarks: token files, the model, the programs of the plugins, and the plan of a step.
//
// Some mistakes, such as an unknown parameter of a plugin or a token file with another vocabulary,
// are only detected when these parts are built. They are reported with the line of the
// configuration. Nothing is computed here, and the plugins are stopped once their programs have
// been collected. Only opaque optimizers and quantizers that search are restarted, for a training.
package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/spec"
)

// Model creates the model that the configuration describes; the vocabulary size of a language model
// must be known.
func Model(cfg *config.Config) (model.Model, error) {
	q := &cfg.Quantizer
	sites := model.Sites{Keys: q.Quantizes(config.RoleKeys), Values: q.Quantizes(config.RoleValues),
		Queries: q.Quantizes(config.RoleQueries), Head: q.Quantizes(config.RoleHead)}
	m, err := model.New(cfg.Model, model.Options{Recompute: cfg.Train.Recompute, Documents: cfg.Data.Separate(), Sites: sites})
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return m, nil
}

// ReplicaBatch returns the number of sequences in a micro-batch per replica of the device.
func ReplicaBatch(cfg *config.Config) int { return cfg.Train.Batch / max(1, cfg.Device.Count) }

// Device opens the configured device. warn, unless nil, receives warnings about missing
// capabilities of the device, with details as key-value pairs.
func Device(cfg *config.Config, warn func(message string, details ...any)) (*engine.Device, error) {
	return deviceOf(cfg, warn, nil)
}

func deviceOf(cfg *config.Config, warn func(message string, details ...any), processes engine.Processes) (*engine.Device, error) {
	d := cfg.Device
	if processes != nil && d.Count%processes.Size() != 0 {
		e := cfg.ErrorAt("device.count", "found %d, for %d processes", d.Count, processes.Size())
		e.Hint = "want the number of GPUs of all processes, of which each has as many as the others"
		return nil, e
	}
	kernels, products := d.Kernels, d.Products
	if products == device.FormerBlocks {
		products = device.FloatProducts
	}
	if d.Kind == device.CPU && kernels != device.BodyKernels {
		kernels = device.AutoKernels
	}
	dev, err := engine.Open(d.Kind, engine.Options{
		Threads: d.Threads, Count: d.Count, Processes: processes, Precision: d.Precision, TF32: d.TF32 == "on",
		Attention: d.Attention, Kernels: kernels, Products: products, Warn: warn,
		Allocator: d.Allocator, Preallocate: d.Preallocate == "on", MemoryFraction: d.MemoryFraction, Cache: d.Cache,
		Timeout: time.Duration(d.TimeoutMinutes * float64(time.Minute)),
	})
	if few, ok := errors.AsType[*engine.CountError](err); ok {
		return nil, cfg.ErrorAt("device.count", "%w", few)
	}
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	if kernels != d.Kernels {
		dev.Warn("device.kernels has no effect on the CPU any more", "kernels", d.Kernels)
	}
	if products != d.Products {
		dev.Warn("device.products = \"fp4\" has no effect any more: values are multiplied")
	}
	if d.Offload != "none" {
		dev.Warn("device.offload has no effect any more: states are in the GPU's memory")
	}
	dev.WarnOfProducts()
	return dev, nil
}

// Built holds the parts of a configuration, for training and for evaluation: the programs of its
// plugins, its device, and the step compiled for it.
type Built struct {
	Programs *Programs
	Device   *engine.Device
	// Compiled is the step of the current phase: initially the first phase, later the one that
	// [Built.Choose] selected.
	Compiled *step.Compiled
	phases   []*step.Compiled // in the order of Programs.Phases
	phase    int              // index of the current phase
	req      Request
	// processes are the running plugins that compute themselves.
	processes []interface{ Close() }
}

// Build fills b, which must be closed even after an error. file names the configuration in which
// the memory check can be turned off; empty means the user's.
func (b *Built) Build(ctx context.Context, req Request, warn func(message string, details ...any), file string) (err error) {
	b.req = req
	if b.Programs, err = Collect(ctx, req); err != nil {
		return err
	}
	if req.Config.Device.Kind == device.CPU {
		if err := b.decide(&req, onMachine(b.Programs)); err != nil {
			return refusal(err, file)
		}
	}
	if err := CheckMemory(req.Config, req.Model, b.Programs); err != nil {
		return refusal(err, file)
	}
	if b.Device, err = deviceOf(req.Config, warn, req.Processes); err != nil {
		return err
	}
	err = b.decide(&req, func(cfg *config.Config, m model.Model) (*Report, error) {
		return compiledReport(cfg, m, b.Programs, b.Device)
	})
	if err != nil {
		return err
	}
	var plans []step.Plan
	for _, p := range b.Programs.Phases() {
		plan, err := Plan(req.Config, req.Model, p)
		if err != nil {
			return err
		}
		plans = append(plans, plan)
	}
	opaque, searches := map[string]step.Opaque{}, map[string]step.Search{}
	for _, part := range b.Programs.computing { // optimizers by tensors, and quantizers by weights
		if len(part.tensors) > 0 {
			s, err := plugin.NewStepper(ctx, part.client, part.tensors)
			if err != nil {
				return req.Config.ErrorAt(part.key, "%w", err)
			}
			b.processes = append(b.processes, s)
			for _, t := range part.tensors {
				opaque[t.Name] = s
			}
			continue
		}
		s, err := plugin.NewSearcher(ctx, part.client, part.sites, req.Config.Train.Steps)
		if err != nil {
			return req.Config.ErrorAt(part.key, "%w", err)
		}
		b.processes = append(b.processes, s)
		for _, site := range part.sites {
			searches[site.Name] = s
		}
	}
	for _, plan := range plans {
		plan.Opaque, plan.Search = opaque, searches
		compiled, err := step.Compile(b.Device, plan)
		if err != nil {
			return err
		}
		b.phases = append(b.phases, compiled)
	}
	b.Compiled = b.phases[0]
	return nil
}

// decide resolves the settings of the request that depend on the available memory.
func (b *Built) decide(req *Request, need func(*config.Config, model.Model) (*Report, error)) (err error) {
	req.Config, req.Model, err = decide(req.Config, req.Model, need)
	b.req = *req
	return err
}

// Prepare compiles everything that training runs in any phase.
func (b *Built) Prepare(pareto bool) error {
	for _, c := range b.phases {
		if err := c.Prepare(pareto); err != nil {
			return err
		}
	}
	if err := b.checkDevice(); err != nil {
		return refusal(err, "")
	}
	return nil
}

// Phase returns the programs of the current phase.
func (b *Built) Phase() *Programs { return b.Programs.Phases()[b.phase] }

// Choose selects the phase of a step, and reports whether the phase has changed.
func (b *Built) Choose(step int) bool {
	before := b.phase
	b.phase = b.phaseOf(step)
	b.Compiled = b.phases[b.phase]
	return b.phase != before
}

func (b *Built) phaseOf(step int) (phase int) {
	for i, p := range b.Programs.Phases() {
		if p.From <= step {
			phase = i
		}
	}
	return phase
}

// Enter selects the phase of a step, and converts the state after the step before to it. It reports
// whether the phase has changed. batches are those of the step.
func (b *Built) Enter(step int, s *step.State, batches *step.Batches) (bool, error) {
	programs, before := b.Phase(), b.Compiled
	if !b.Choose(step) {
		return false, nil
	}
	same := func(before, after map[string]spec.Quantizer, site string) bool {
		p, had := before[site]
		q, has := after[site]
		return had && has && maps.Equal(spec.Hashes(p.Programs()), spec.Hashes(q.Programs()))
	}
	err := b.Compiled.Enter(s, before, func(site string) bool {
		now := b.Phase()
		return same(programs.Weights, now.Weights, site) || same(programs.Activations, now.Activations, site)
	}, batches)
	if err != nil { // the state still belongs to the previous phase
		b.Choose(step - 1)
	}
	return true, err
}

// Has reports whether the current phase contains step.
func (b *Built) Has(step int) bool { return b.phaseOf(step) == b.phase }

// Rules lists the update rules of all phases.
func (b *Built) Rules() (list []cage.Rule) {
	for _, c := range b.phases {
		list = append(list, c.Plan().Rules...)
	}
	return list
}

// LendTeacher shares the teacher that the current phase has loaded with the other phases.
func (b *Built) LendTeacher() {
	for _, c := range b.phases {
		if c != b.Compiled {
			b.Compiled.LendTeacher(c)
		}
	}
}

func refusal(err error, file string) error {
	if file != "" {
		file = " in " + file
	}
	off := ""
	if e, ok := errors.AsType[*MemoryError](err); ok && e.Accuracy > 0 {
		off = fmt.Sprintf("the estimate may be off by %.0f %%; ", 100*e.Accuracy)
	}
	return fmt.Errorf("%w\n%strain.memory_check = \"off\"%s tries it all the same", err, off, file)
}

// Computing reports whether the processes of plugins compute a part of the step.
func (b *Built) Computing() bool { return len(b.processes) > 0 }

// Close frees everything. States must be closed first, because opaque optimizers hold parts of them
// in memory.
func (b *Built) Close() {
	for _, c := range b.phases {
		c.Close()
	}
	if b.Device != nil {
		b.Device.Close()
	}
	for _, p := range b.processes {
		p.Close()
	}
}
