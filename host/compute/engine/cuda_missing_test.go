//go:build !cuda

package engine

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
)

func TestOpenCUDAWithoutSupport(t *testing.T) {
	_, err := Open(device.CUDA, Options{})
	if err == nil {
		t.Fatal("a build without CUDA opened it")
	}
	for _, want := range []string{`device "cuda"`, "-tags cuda", "pip install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %q", err, want)
		}
	}
}
