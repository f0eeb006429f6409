package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

// TestScaleFindsPlantedExponents: what grows as a power of the size is fitted exactly.
func TestScaleFindsPlantedExponents(t *testing.T) {
	g, err := Scale(t.Context(), "width", []int{64, 128, 512}, func(_ context.Context, size int) (Point, error) {
		n := float64(size)
		return Point{Seconds: 3e-9 * math.Pow(n, 1.7), FLOPs: 6 * n * n, PeakMemory: int64(size) << 20}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]float64{"time": {g.Time, 1.7}, "operations": {g.FLOPs, 2}, "memory": {g.Memory, 1}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("exponent of %s is %v, planted was %v", name, pair[0], pair[1])
		}
	}
	if len(g.Points) != 3 || g.Points[2].Size != 512 {
		t.Errorf("points %+v", g.Points)
	}
}

func TestScaleRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		sizes []int
		want  string
	}{
		"failure":   {[]int{64, 128}, "width 64: out of memory"},
		"one size":  {[]int{64}, "width: sizes [64] show no growth"},
		"one twice": {[]int{64, 64}, "two different ones"},
		"nothing":   {[]int{0, 64}, "of 1 or more"},
	} {
		_, err := Scale(t.Context(), "width", tt.sizes, func(context.Context, int) (Point, error) { return Point{}, errors.New("out of memory") })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}
