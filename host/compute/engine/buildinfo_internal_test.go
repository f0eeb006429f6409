package engine

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/loops"
)

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
