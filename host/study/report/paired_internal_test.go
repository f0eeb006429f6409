package report

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/study"
)

// TestPaired: replicates are paired by their labels, wherever one is missing.
func TestPaired(t *testing.T) {
	list := func(values map[string]float64, keys ...string) (out []replicate) {
		for _, k := range keys {
			r := replicate{key: k}
			if v, ok := values[k]; ok {
				r.result = study.Result{Summary: map[string]float64{"val_loss": v}}
			}
			out = append(out, r)
		}
		return out
	}
	a := list(map[string]float64{"1": 11, "2": 12}, "0", "1", "2")
	b := list(map[string]float64{"0": 20, "2": 22}, "2", "1", "0")
	if x, y := paired(a, b, "val_loss"); !slices.Equal(x, []float64{12}) || !slices.Equal(y, []float64{22}) {
		t.Errorf("%v and %v, want 12 and 22", x, y)
	}
}
