package engine

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/loops"
)

// TestHidden checks that a missing field is an error that names it. Tests of CUDA builds check the
// programs that XLA gets.
func TestHidden(t *testing.T) {
	err := catch(func() error { hidden(&struct{ other int }{}, "scalars"); return nil })
	if err == nil || !strings.Contains(err.Error(), "needs the field scalars of *struct") {
		t.Errorf("a field that is missing: %v", err)
	}
}

func TestBuildInfo(t *testing.T) {
	d, err := Open(device.CPU, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info := d.BuildInfo()
	if info != d.BuildInfo() {
		t.Error("two calls differ")
	}
	line := info.String()
	for _, want := range []string{"device=cpu", "go=go1.", "simd=" + loops.Vectors()} {
		if !strings.Contains(line, want) {
			t.Errorf("build info %q lacks %q", line, want)
		}
	}
}
