package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestConformance also takes a matrix in blocks, and an update without memory.
func TestConformance(t *testing.T) {
	claim := sdktest.Claim(sdktest.Traits{Still: true, Descent: 1e-3})
	sdktest.Optimizer(t, muon{}, plugintest.Kit(t, "muon", claim)...)
	for name, given := range map[string]map[string]any{"blocks": {"split": "2"}, "no momentum": {"momentum": 0.0}} {
		t.Run(name, func(t *testing.T) { sdktest.Optimizer(t, muon{}, plugintest.With(t, given, claim)...) })
	}
}
