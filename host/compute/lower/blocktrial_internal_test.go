package lower

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestKernelTrial: likewise the trial of kernels, in which one of a hundred values may differ.
func TestKernelTrial(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
	if err := (kernelTrial{}).run(d); err != nil {
		t.Error(err)
	}
	values := func(differ int, by float32) []float32 {
		x := slices.Repeat([]float32{1, -2}, 100)
		for i := range differ {
			x[i] *= by
		}
		return x
	}
	for _, tt := range []struct {
		kernel []float32
		want   string
	}{
		{values(0, 1), ""},
		{values(2, 3), ""},
		{values(200, 1.01), ""},
		{values(3, 1.02), "0.015 of the values"},
		{values(3, float32(math.NaN())), "0.015 of the values"},
	} {
		err := kernelTrial{}.compare(tt.kernel, values(0, 1))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	if err := (kernelTrial{}).compare(make([]float32, 4), make([]float32, 4)); err == nil || !strings.Contains(err.Error(), "nothing but zeros") {
		t.Errorf("zeros: %v", err)
	}
}

// TestBlockTrial: what the kernel means passes its trial in both formats; a kernel that computes something else would not.
func TestBlockTrial(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
	if err := (blockTrial{}).run(d); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		kernel, values []float32
		want           string
	}{
		{[]float32{1, 2}, []float32{1, 2}, ""},
		{[]float32{1, 2.001}, []float32{1, 2}, "relative error of 0.00045"},
		{[]float32{1, float32(math.NaN())}, []float32{1, 2}, "relative error of NaN"},
		{[]float32{0, 0}, []float32{0, 0}, "nothing but zeros"},
	} {
		err := blockTrial{}.compare(tt.kernel, tt.values)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v beside %v: %v, want %q", tt.kernel, tt.values, err, tt.want)
		}
	}
}
