package assembly

import (
	"errors"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
)

// ReplicaBatch is the number of sequences of a micro-batch that one replica of the device
// computes at once.
func ReplicaBatch(cfg *config.Config) int { return cfg.Train.Batch / max(1, cfg.Device.Count) }

// Device opens the device that the configuration names.
func Device(cfg *config.Config) (*engine.Device, error) {
	d := cfg.Device
	dev, err := engine.Open(d.Kind, engine.Options{
		Threads: d.Threads, Count: d.Count, Precision: engine.Precision(d.Precision), TF32: d.TF32 == "on",
	})
	if few, ok := errors.AsType[*engine.CountError](err); ok {
		return nil, cfg.ErrorAt("device.count", "%w", few)
	}
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	return dev, nil
}
