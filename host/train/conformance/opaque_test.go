package conformance_test

import (
	"runtime"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestOpaque checks that an opaque optimizer in its own process passes the kit.
func TestOpaque(t *testing.T) {
	testlevel.Long(t, "builds a plugin, and starts a process for each tensor")
	if runtime.GOOS != "linux" {
		t.Skip("opaque optimizers need Linux")
	}
	c, err := plugin.Start(t.Context(), testrun.Example(t, "opaque-adamw"), sdk.KindOptimizer,
		plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	settings := map[string]any{"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
	report, err := conformance.Check(t.Context(), c, settings, nil)
	if err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for _, check := range report.Checks {
		if check.Status == sdktest.Fail {
			t.Errorf("%s: %v", check.Name, check.Failures)
		}
		passed[check.Name] = check.Status == sdktest.Pass
	}
	if !passed["retry"] || !passed["finite"] {
		t.Errorf("passed: %v", passed)
	}
}
