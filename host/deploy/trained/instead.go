package trained

import (
	"fmt"

	"github.com/cage-qat/cage/host/train/config"
)

// NoQuantizer, given as the name of a plugin, means that nothing is quantized.
const NoQuantizer = "none"

// A Quantizer replaces the quantizers of a run, without any training for it.
type Quantizer struct {
	Plugin string // name or path; [NoQuantizer] for none
	Params map[string]any
	// WeightsOnly leaves activations in full precision.
	WeightsOnly bool
}

// String returns the plugin, its parameters and what it quantizes. Quantizers that give different results have
// different strings.
func (q *Quantizer) String() string {
	text := q.Plugin
	if len(q.Params) > 0 {
		text += fmt.Sprint(" ", q.Params) // maps are printed in the order of their keys
	}
	if q.WeightsOnly {
		text += ", weights only"
	}
	return text
}

// Tables are those of a configuration that quantizes so.
func (q *Quantizer) Tables() config.Quantizer {
	named := func(role string) *config.Plugin {
		return &config.Plugin{Table: "quantizer." + role, Name: q.Plugin, Params: q.Params}
	}
	switch {
	case q.Plugin == NoQuantizer:
		return config.Quantizer{}
	case q.WeightsOnly:
		return config.Quantizer{Weights: named(config.RoleWeights)}
	}
	return config.Quantizer{Weights: named(config.RoleWeights), Activations: named(config.RoleActivations)}
}
