package assembly

import (
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
)

// Device opens the device that the configuration names.
func Device(cfg *config.Config) (*engine.Device, error) {
	if cfg.Device.Precision != "float32" {
		e := cfg.ErrorAt("device.precision", "matrix products in %s are not implemented", cfg.Device.Precision)
		e.Hint = `use "float32"`
		return nil, e
	}
	dev, err := engine.Open(cfg.Device.Kind, engine.Options{Threads: cfg.Device.Threads})
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	return dev, nil
}
