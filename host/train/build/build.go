// Package build turns a checked configuration into the parts used by training, evaluation and
// benchmarks: token files, the model, the programs of the plugins, and the plan of a step. Mistakes
// that are only detected here, such as an unknown parameter of a plugin, are reported with the line
// of the configuration. The plugins are stopped once their programs have been collected. For
// training, opaque optimizers and quantizers that search are started again.
package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
)

// Model creates the configured model. For a language model, the vocabulary size must be set.
func Model(cfg *config.Config) (model.Model, error) {
	q := &cfg.Quantizer
	sites := model.Sites{Keys: q.Quantizes(config.RoleKeys), Values: q.Quantizes(config.RoleValues),
		Queries: q.Quantizes(config.RoleQueries), Head: q.Quantizes(config.RoleHead)}
	m, err := model.New(cfg.Model, model.Options{Recompute: cfg.Train.Recompute,
		Documents: cfg.Data.Separate(), Sites: sites})
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return m, nil
}

// ReplicaBatch returns the number of sequences per micro-batch on each replica.
func ReplicaBatch(cfg *config.Config) int { return cfg.Train.Batch / max(1, cfg.Device.Count) }

// Warn receives warnings, with details as key-value pairs.
type Warn = func(message string, details ...any)

// Device opens the configured device. If warn is not nil, it receives warnings about capabilities
// that the device lacks.
func Device(cfg *config.Config, warn Warn) (*engine.Device, error) {
	return deviceOf(cfg, warn, nil)
}

func deviceOf(cfg *config.Config, warn Warn, processes engine.Processes) (*engine.Device, error) {
	d := cfg.Device
	if processes != nil && d.Count%processes.Size() != 0 {
		n := processes.Size()
		return nil, cfg.ErrorAt("device.count", "found %d with %d processes", d.Count, n).
			WithHint("want a multiple of the number of processes: the total number of GPUs")
	}
	kernels := d.Kernels
	if d.Kind == device.CPU && kernels != device.BodyKernels {
		kernels = device.AutoKernels
	}
	dev, err := engine.Open(d.Kind, engine.Options{
		Threads: d.Threads, Count: d.Count, Processes: processes,
		Precision: d.Precision, TF32: d.TF32 == "on", Products: d.Products,
		Attention: d.Attention, Kernels: kernels, Warn: warn, Cache: d.Cache,
		Allocator: d.Allocator, Preallocate: d.Preallocate == "on", MemoryFraction: d.MemoryFraction,
		Timeout: time.Duration(d.TimeoutMinutes * float64(time.Minute)),
	})
	if few, ok := errors.AsType[*engine.CountError](err); ok {
		return nil, cfg.ErrorAt("device.count", "%w", few)
	}
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	if kernels != d.Kernels {
		dev.Warn("device.kernels no longer has an effect on the CPU", "kernels", d.Kernels)
	}
	dev.WarnOfProducts()
	return dev, nil
}

// Runtime executes a configuration, for training or for evaluation. It holds the programs of its
// plugins, its device, and the compiled step.
type Runtime struct {
	Programs *Programs
	Device   *engine.Device
	Compiled *step.Compiled
	// Recompute is train.recompute, resolved by [ResolveRecompute].
	Recompute architecture.Recompute
	req       Request
	// processes are the running optimizers and quantizers that compute in their own processes.
	processes []interface{ Close() }
}

// Build fills b, which must be closed even after an error. If file is not empty, the error of the
// memory check names it as the configuration file in which to disable the check.
func (b *Runtime) Build(ctx context.Context, req Request, warn Warn, file string) (err error) {
	if b.Programs, err = Collect(ctx, req); err != nil {
		return err
	}
	if b.Device, err = deviceOf(req.Config, warn, req.Processes); err != nil {
		return err
	}
	req.Config, req.Model, err = ResolveRecompute(req.Config, req.Model, b.Programs, b.Device)
	if err != nil {
		return err
	}
	b.req, b.Recompute = req, req.Config.Train.Recompute
	plan, err := Plan(req.Config, req.Model, b.Programs)
	if err != nil {
		return err
	}
	check := func(c *step.Compiled) error {
		return refusal(CheckMemory(req.Config, b.Programs, c), file)
	}
	if len(b.Programs.computing) > 0 { // before these plugins allocate memory
		c, err := step.Compile(b.Device, b.Programs.unstarted(plan))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := check(c); err != nil {
			return err
		}
	}
	plan.Opaque, plan.Search = map[string]step.Opaque{}, map[string]step.Search{}
	for _, part := range b.Programs.computing { // optimizers by tensors, and quantizers by weights
		if len(part.tensors) > 0 {
			s, err := plugin.NewStepper(ctx, part.client, part.tensors)
			if err != nil {
				return req.Config.ErrorAt(part.key, "%w", err)
			}
			b.processes = append(b.processes, s)
			for _, t := range part.tensors {
				plan.Opaque[t.Name] = s
			}
			continue
		}
		s, err := plugin.NewSearcher(ctx, part.client, part.sites, req.Config.Train.Steps)
		if err != nil {
			return req.Config.ErrorAt(part.key, "%w", err)
		}
		b.processes = append(b.processes, s)
		for _, site := range part.sites {
			plan.Search[site.Name] = s
		}
	}
	if b.Compiled, err = step.Compile(b.Device, plan); err == nil && len(b.Programs.computing) == 0 {
		err = check(b.Compiled)
	}
	return err
}

// Prepare compiles everything that training runs, including the stationarity measure if pareto is
// set. It returns an error if the compiled step needs more memory than the GPU has.
func (b *Runtime) Prepare(pareto bool) error {
	err := b.Compiled.Prepare(pareto)
	if err != nil || b.req.Config.Train.MemoryCheck == "off" || b.Device.SharesMemory() {
		return err
	}
	if r := b.report(); r != nil && r.Available != nil {
		return refusal(r.Err(), "")
	}
	return nil
}

// refusal adds to a [*MemoryError] how to disable the check. It returns other errors unchanged.
func refusal(err error, file string) error {
	e, refused := errors.AsType[*MemoryError](err)
	if !refused {
		return err
	}
	if file != "" {
		file = " in " + file
	}
	off := ""
	if e.Accuracy > 0 {
		off = fmt.Sprintf("the estimate may be off by %.0f %%; ", 100*e.Accuracy)
	}
	return fmt.Errorf("%w\n%strain.memory_check = \"off\"%s disables this check", err, off, file)
}

// Computing reports whether plugin processes compute a part of the step.
func (b *Runtime) Computing() bool { return len(b.processes) > 0 }

// Close stops the plugins and frees the device. States must be closed first, because opaque
// optimizers hold parts of them in memory.
func (b *Runtime) Close() {
	if b.Compiled != nil {
		b.Compiled.Close()
	}
	if b.Device != nil {
		b.Device.Close()
	}
	for _, p := range b.processes {
		p.Close()
	}
}
