package assembly

import (
	"errors"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/config"
)

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
	return dev, nil
}
