package figure

import (
	"image/color"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

func TestLogTicks(t *testing.T) {
	tests := []struct {
		low, high float64
		want      string
	}{
		{1, 1000, "1 10 100 1000"},
		{0.0009, 12, "0.001 0.01 0.1 1 10"},
		{2e7, 3e8, "2·10⁷ 3·10⁷ 4·10⁷ 5·10⁷ 10⁸ 2·10⁸ 3·10⁸"},
		{0.5, 60, "0.5 1 2 5 10 20 50"},
		{1e-6, 1e-3, "10⁻⁶ 10⁻⁵ 10⁻⁴ 0.001"},
		{2, 5, "2.0 2.5 3.0 3.5 4.0 4.5 5.0"},
		{1e-12, 1e12, "10⁻¹² 10⁻⁹ 10⁻⁶ 0.001 1 1000 10⁶ 10⁹ 10¹²"},
	}
	for _, test := range tests {
		var got []string
		for _, tick := range (logTicks{}).Ticks(test.low, test.high) {
			if tick.Label != "" {
				got = append(got, tick.Label)
			}
			if tick.Value < test.low*(1-1e-6) || tick.Value > test.high*(1+1e-6) {
				t.Errorf("a mark at %v lies outside [%v, %v]", tick.Value, test.low, test.high)
			}
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("[%v, %v] is labelled %q, want %q", test.low, test.high, s, test.want)
		}
	}
}

// The colour scale gets darker from end to end, so that it can be read in grey, and
// numbers on it have the contrast that small text needs (4.5 to 1).
func TestRamp(t *testing.T) {
	previous := math.Inf(1)
	for i := range 101 {
		c := ramp(float64(i) / 100)
		l := luminance(c)
		if l > previous {
			t.Errorf("the scale gets lighter at %d %%", i)
		}
		previous = l
		ink := luminance(color.NRGBAModel.Convert(textOn(c)).(color.NRGBA))
		if contrast := (max(l, ink) + 0.05) / (min(l, ink) + 0.05); contrast < 4.5 {
			t.Errorf("numbers at %d %% have the contrast %.2f", i, contrast)
		}
	}
	if ramp(-1) != ramp(0) || ramp(2) != ramp(1) {
		t.Error("values beyond the ends have other colours")
	}
}

func TestFit(t *testing.T) {
	style := textStyle(textSize)
	full := style.Width("a rather long label")
	for _, test := range []struct {
		share float64
		want  string
	}{{1, "a rather long label"}, {0.6, "a rather…"}, {0, "…"}} {
		if got := fit("a rather long label", style, vg.Length(test.share)*full*1.0001); got != test.want {
			t.Errorf("%v of the width holds %q, want %q", test.share, got, test.want)
		}
	}
}
