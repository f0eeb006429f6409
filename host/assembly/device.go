package assembly

import (
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
)

// Device opens the device that the configuration names. warn, if any, is told what it should
// be known to lack, with details as pairs of a key and a value.
func Device(cfg *config.Config, warn func(message string, details ...any)) (*engine.Device, error) {
	d := cfg.Device
	dev, err := engine.Open(d.Kind, engine.Options{
		Threads: d.Threads, Precision: engine.Precision(d.Precision), TF32: d.TF32 == "on", Attention: engine.Attention(d.Attention), Warn: warn,
	})
	if err != nil {
		return nil, cfg.ErrorAt("device.kind", "%w", err)
	}
	return dev, nil
}
