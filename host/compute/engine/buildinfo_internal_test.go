package engine

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/plainjson"
)

// TestOldBuildInfo reads what was written when graphs were GoMLX's.
func TestOldBuildInfo(t *testing.T) {
	var info BuildInfo
	err := plainjson.UnmarshalStrict([]byte(`{"device": "cuda", "gomlx": "v0.28.16"}`), &info)
	if err != nil || info == (BuildInfo{Device: "cuda"}) {
		t.Errorf("%+v, %v", info, err)
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
