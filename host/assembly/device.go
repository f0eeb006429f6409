package assembly

import (
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
)

// Device opens the device that the configuration names.
func Device(cfg *config.Config) (*engine.Device, error) {
	d := cfg.Device
	dev, err := engine.Open(d.Kind, engine.Options{Threads: d.Threads, Precision: engine.Precision(d.Precision), TF32: d.TF32 == "on"})
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	return dev, nil
}
