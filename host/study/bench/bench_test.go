package bench

import (
	"math"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/config"
)

func TestSummaries(t *testing.T) {
	first := Timing{All: []float64{1, 2, 4}, cpu: []float64{2, 2, 2}}
	second := Timing{All: []float64{2, 2, 6}, cpu: []float64{3, 3, 4}}
	summarize(&second, &first)
	if second.Seconds != 2 || second.Ratio != 1.5 || second.CPU != 3 || second.CPURatio != 1.5 {
		t.Errorf("medians of {2 2 6} against {1 2 4}: %+v", second)
	}
	if math.Abs(second.Mean-10.0/3) > 1e-15 || math.Abs(second.MeanRatio-10.0/7) > 1e-15 {
		t.Errorf("mean %v, ratio %v, want 10/3 and 10/7", second.Mean, second.MeanRatio)
	}
	if second.Low != 1.25 || second.High != 1.75 {
		t.Errorf("quartiles of the ratios {2 1 1.5}: %v to %v, want 1.25 to 1.75", second.Low, second.High)
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

func TestOverhead(t *testing.T) {
	configure := func(v Variant) (*config.Config, error) {
		rotation := "none"
		if v.Rotation {
			rotation = "auto"
		}
		return parse(t, "quantizer.rotation="+strconv.Quote(rotation), "method.lambda=10.0"), nil
	}
	o := Options{Rounds: 3, Finder: testrun.Finder(t)}
	r, err := Overhead(t.Context(), configure, Variants(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Variants) != 4 || r.Tokens != 32 || r.Parameters == 0 {
		t.Fatalf("report: %+v", r)
	}
	for i, v := range r.Variants {
		if v.Variant != Variants()[i] {
			t.Errorf("variant %d is %v, want the order of the table", i, v.Variant)
		}
		if v.Seconds <= 0 || v.Ratio <= 0 || v.PeakMemory != 0 {
			t.Errorf("%v: %+v", v.Variant, v)
		}
	}
	// The four compute different things: loss after the same steps tells.
	for i, v := range r.Variants {
		for _, w := range r.Variants[:i] {
			if v.Loss == w.Loss {
				t.Errorf("%v and %v end with the same loss %v", v.Variant, w.Variant, v.Loss)
			}
		}
	}
	alone, err := Overhead(t.Context(), configure, Variants()[3:], o)
	if err != nil {
		t.Fatal(err)
	}
	if len(alone.Variants) != 1 || alone.Variants[0].PeakMemory < 1<<20 {
		t.Errorf("alone: %+v, want its peak memory", alone.Variants)
	}
}
