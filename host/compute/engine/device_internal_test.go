package engine

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"

	"github.com/cage-qat/cage/host/compute/device"
)

// TestThreadsReachBackend guards the reflection in setParallelism against a change in the backend.
func TestThreadsReachBackend(t *testing.T) {
	for threads, want := range map[int]string{0: "parallelism=-1", 3: "parallelism=3"} {
		d, err := Open(device.CPU, Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Description(); !strings.Contains(got, want) {
			t.Errorf("with %d threads the device is %q, want %q in it", threads, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSetParallelismReportsChangedBackend(t *testing.T) {
	type noPool struct{ compute.Backend }
	type otherPool struct {
		compute.Backend
		Workers int
	}
	for _, backend := range []compute.Backend{&noPool{}, &otherPool{}} {
		if err := setParallelism(backend, 1); err == nil {
			t.Errorf("no error for %T", backend)
		}
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
	for _, want := range []string{"device=cpu", "go=go1.", "simd=" + vectorInstructions(), "gomlx=v", "backend=compute@v"} {
		if !strings.Contains(line, want) {
			t.Errorf("build info %q lacks %q", line, want)
		}
	}
}
