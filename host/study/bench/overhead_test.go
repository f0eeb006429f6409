package bench

import (
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/config"
)

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
