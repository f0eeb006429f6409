// Package assembly turns a checked configuration into the parts from which training,
// evaluation and benchmarks are made: token files, the model, the programs of the
// plugins, and the plan of a step.
//
// Some mistakes, such as an unknown parameter of a plugin or a token file with another
// vocabulary, show only when these parts are made. They are reported here, with the line
// of the configuration. Nothing is computed here, and once the programs have been
// collected, the plugins are stopped. Only opaque optimizers and quantizers that search are started again, for a training.
package assembly

import (
	"context"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/memory"
	"github.com/cage-qat/cage/host/train/step"
)

// Model makes the model that the configuration describes; the vocabulary of a
// language model must be known.
func Model(cfg *config.Config) (model.Model, error) {
	m, err := model.New(cfg.Model, model.Options{Recompute: cfg.Train.Recompute == config.RecomputeBlocks, Documents: cfg.Data.Separate(), Sites: sitesOf(&cfg.Quantizer)})
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return m, nil
}

// ReplicaBatch returns the number of sequences in a micro-batch that one replica of the
// device computes at once.
func ReplicaBatch(cfg *config.Config) int { return cfg.Train.Batch / max(1, cfg.Device.Count) }

// Device opens the device that the configuration names. warn, unless nil, receives
// warnings about what the device lacks, with details as key-value pairs.
func Device(cfg *config.Config, warn func(message string, details ...any)) (*engine.Device, error) {
	d := cfg.Device
	dev, err := engine.Open(d.Kind, engine.Options{
		Threads: d.Threads, Count: d.Count, Precision: d.Precision, TF32: d.TF32 == "on",
		Attention: d.Attention, Kernels: d.Kernels, Products: d.Products, Warn: warn,
		Allocator: d.Allocator, Preallocate: d.Preallocate == "on", MemoryFraction: d.MemoryFraction, Cache: d.Cache,
	})
	if few, ok := errors.AsType[*engine.CountError](err); ok {
		return nil, cfg.ErrorAt("device.count", "%w", few)
	}
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	dev.WarnOfProducts()
	return dev, nil
}

// Built is what a configuration becomes, for training and for evaluation alike: the
// programs of its plugins, its device, and the step compiled for that.
type Built struct {
	Programs *Programs
	Device   *engine.Device
	Compiled *step.Compiled
	// processes are those of plugins that compute themselves.
	processes []interface{ Close() }
}

// Build fills b, which is to be closed also after an error. file names the configuration in
// which the memory check can be turned off; empty: the one that the user has given.
func (b *Built) Build(ctx context.Context, req Request, warn func(message string, details ...any), file string) (err error) {
	if err := CheckSizes(req); err != nil {
		return refusal(err, file)
	}
	if b.Programs, err = Collect(ctx, req); err != nil {
		return err
	}
	if err := CheckMemory(req.Config, req.Model, b.Programs); err != nil {
		return refusal(err, file)
	}
	if b.Device, err = Device(req.Config, warn); err != nil {
		return err
	}
	plan, err := Plan(req.Config, req.Model, b.Programs)
	if err != nil {
		return err
	}
	if plan.Opaque, err = b.startOpaque(ctx, req.Config); err != nil {
		return err
	}
	if plan.Search, err = b.startSearches(ctx, req.Config); err != nil {
		return err
	}
	b.Compiled, err = step.Compile(b.Device, plan)
	return err
}

// refusal says how to do what needs too much memory all the same.
func refusal(err error, file string) error {
	if file != "" {
		file = " in " + file
	}
	return fmt.Errorf("%w\nthe estimate may be off by %.0f %%; train.memory_check = \"off\"%s tries it all the same", err, 100*memory.Accuracy, file)
}

// Close frees everything. States are closed before, because opaque optimizers have parts of them in their memory.
func (b *Built) Close() {
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
