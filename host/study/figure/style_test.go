package figure

import (
	"bytes"
	"image/color"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func TestTicks(t *testing.T) {
	tests := []struct {
		low, high float64
		want      string
	}{
		{0, 3000, "0 500 1000 1500 2000 2500 3000"},
		{0, 2, "0.0 0.5 1.0 1.5 2.0"},
		{-0.1, 2, "0.0 0.5 1.0 1.5 2.0"},
		{1.5, 2.74, "1.50 1.75 2.00 2.25 2.50"},
		{7.4, 12.2, "8 9 10 11 12"},
		{-3, 3, "−3 −2 −1 0 1 2 3"},
		{1, 15, "2.5 5.0 7.5 10.0 12.5 15.0"},
		{0, 95, "0 20 40 60 80"},
		{0, 55, "0 10 20 30 40 50"},
		{0.0101, 0.0102, "0.01010 0.01012 0.01014 0.01016 0.01018 0.01020"},
		{2.9000001, 2.9000004, "2.90000015 2.9000002 2.90000025 2.9000003 2.90000035 2.9000004"},
		{12345000, 12345005, "12345000 12345001 12345002 12345003 12345004 12345005"},
		{0, 6e8, "0 1e+08 2e+08 3e+08 4e+08 5e+08 6e+08"},
	}
	for _, test := range tests {
		var labels []string
		for _, tick := range (ticks{}).Ticks(test.low, test.high) {
			labels = append(labels, tick.Label)
			if tick.Value < test.low-1e-6*(test.high-test.low) || tick.Value > test.high+1e-6*(test.high-test.low) {
				t.Errorf("a mark at %v lies outside [%v, %v]", tick.Value, test.low, test.high)
			}
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("[%v, %v] is labelled %q, want %q", test.low, test.high, got, test.want)
		}
	}
	for _, tick := range (ticks{unlabelled: true}).Ticks(0, 10) {
		if strings.TrimSpace(tick.Label) != "" {
			t.Errorf("label %q on an axis without labels", tick.Label)
		}
	}
}

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

// TestPlacesAreToldApart: when the colours come again, the pictures in the legend, which
// are what is drawn, are others.
func TestPlacesAreToldApart(t *testing.T) {
	for name, tc := range map[string]struct {
		places  int
		picture func(place int) plot.Thumbnailer
	}{
		"marks":  {14 * Colors, func(i int) plot.Thumbnailer { return Series{Marks: true}.thumbnail(i) }},
		"lines":  {3 * Colors, func(i int) plot.Thumbnailer { return Series{Line: Solid}.thumbnail(i) }},
		"varied": {4 * Colors, func(i int) plot.Thumbnailer { return Series{Line: Varied}.thumbnail(i) }},
		"keys":   {14 * Colors, func(i int) plot.Thumbnailer { return Series{Marks: true, Key: Solid}.thumbnail(i) }},
		"bars":   {3 * Colors, func(i int) plot.Thumbnailer { return BarSeries{}.thumbnail(i, false) }},
	} {
		seen := map[string]int{}
		for place := range tc.places {
			var b bytes.Buffer
			if err := render(&b, PNG, pictureWidth, rowHeight, func(c draw.Canvas) { tc.picture(place).Thumbnail(&c) }); err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[b.String()]; ok {
				t.Errorf("%s: places %d and %d look the same", name, other, place)
			}
			seen[b.String()] = place
		}
	}
	// The line that the legend shows beside marks is that of a series of its own.
	key, line := Series{Marks: true, Key: Solid}.thumbnail(Colors).(swatch), Series{Line: Solid}.style(Colors)
	if len(key.line.Dashes) == 0 || len(key.line.Dashes) != len(line.Dashes) || key.line.Color != line.Color {
		t.Errorf("the legend has the line %+v, the curve %+v", key.line, line)
	}
}
