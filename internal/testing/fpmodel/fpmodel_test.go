package fpmodel

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
)

func TestE2M1(t *testing.T) {
	for _, c := range []struct {
		r     float64
		ties  microscaling.Ties
		code  int
		value float64
	}{
		{0, microscaling.TiesEven, 0, 0},
		{math.Copysign(0, -1), microscaling.TiesEven, 8, 0},
		{0.25, microscaling.TiesEven, 0, 0},
		{0.25, microscaling.TiesAway, 1, 0.5},
		{0.75, microscaling.TiesEven, 2, 1},
		{0.75, microscaling.TiesDown, 1, 0.5},
		{-5, microscaling.TiesEven, 14, -4},
		{-5.01, microscaling.TiesDown, 15, -6},
		{1e9, microscaling.TiesDown, 7, 6},
	} {
		if code, value := E2M1(c.r, c.ties); code != c.code || value != c.value {
			t.Errorf("%v, ties %s: code %d, value %v", c.r, c.ties, code, value)
		}
	}
}

func TestDecode(t *testing.T) {
	got := Decode([]float64{7, 9, 2, 15, 0, 12}, []float64{1, 10, 100, 1000}, 3, 2)
	if want := []float64{6, -0.5, 10, -600, 0, -2000}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
