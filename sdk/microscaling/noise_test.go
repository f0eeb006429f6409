package microscaling_test

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestPeriodicSigns checks two signs that repeat along rows.
func TestPeriodicSigns(t *testing.T) {
	x := reference.Floats([]float64{1, 2, 3, 4, 5, 6, 7, 0}, 2, 4)
	for p, got := range apply(t, x, func(v program.Value) program.Value {
		s := microscaling.PeriodicSigns(v.Builder(), sdk.Site{Shape: []int{2, 4}}, []float64{1, -1})
		return s.PositiveZeros(s.Apply(v))
	}) {
		if want := []float64{1, -2, 3, -4, 5, -6, 7, 0}; !slices.Equal(got.Floats, want) {
			t.Errorf("%s: got %v, want %v", precisions[p], got.Floats, want)
		}
	}
	for _, got := range apply(t, x, microscaling.Signs{}.Apply) {
		if !slices.Equal(got.Floats, x.Floats) {
			t.Errorf("no signs change %v to %v", x.Floats, got.Floats)
		}
	}
}
