package bench

import (
	"math"
	"testing"
)

func TestSummaries(t *testing.T) {
	first := Timing{All: []float64{1, 2, 4}, cpu: []float64{2, 2, 2}}
	second := Timing{All: []float64{2, 2, 6}, cpu: []float64{3, 3, 4}}
	summarize(&second, &first)
	if second.Seconds != 2 || second.Ratio != 1.5 || second.CPU != 3 || second.CPURatio != 1.5 {
		t.Errorf("medians of {2 2 6} against {1 2 4}: %+v", second)
	}
	if math.Abs(second.Mean-10.0/3) > 1e-15 {
		t.Errorf("mean %v, want 10/3", second.Mean)
	}
	if second.Low != 1.25 || second.High != 1.75 {
		t.Errorf("quartiles of the ratios {2 1 1.5}: %v to %v, want 1.25 to 1.75", second.Low,
			second.High)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{3, 1, 2, 5}
	for p, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 5, 0.25: 1.75} {
		if got := quantile(values, p); math.Abs(got-want) > 1e-15 {
			t.Errorf("quantile %v = %v, want %v", p, got, want)
		}
	}
	if values[0] != 3 {
		t.Error("quantile reorders its argument")
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
}
