package lower

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestBlockTrial: what the kernel means passes its trial in both formats; a kernel that computes something else would not.
func TestBlockTrial(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Precision: engine.BFloat16, Kernels: engine.BodyKernels})
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
