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

// TestBoth: a replicate that has one of two metrics only is no point of their figure.
func TestBoth(t *testing.T) {
	list := []replicate{
		{key: "0", result: study.Result{Summary: map[string]float64{"val_loss": 2, "error_rel": 0.5}}},
		{key: "1", result: study.Result{Summary: map[string]float64{"val_loss": 3}}},
		{key: "2", result: study.Result{Summary: map[string]float64{"error_rel": 0.25}}},
		{key: "3"},
	}
	if x, y := both(list, "error_rel", "val_loss"); !slices.Equal(x, []float64{0.5}) || !slices.Equal(y, []float64{2}) {
		t.Errorf("%v and %v, want 0.5 and 2", x, y)
	}
}
