package assembly

import (
	"errors"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
)

// ReplicaBatch is the number of sequences of a micro-batch that one replica of the device
// computes at once.
func ReplicaBatch(cfg *config.Config) int { return cfg.Train.Batch / max(1, cfg.Device.Count) }

// Device opens the device that the configuration names. warn, if any, is told what it should
// be known to lack, with details as pairs of a key and a value.
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
