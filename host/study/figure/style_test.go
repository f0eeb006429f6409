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
	"gonum.org/v1/plot/vg/vgimg"
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
			if tick.Value < test.low-1e-6*(test.high-test.low) ||
				tick.Value > test.high+1e-6*(test.high-test.low) {
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
		{2e7, 3e8, "2e7 3e7 4e7 5e7 1e8 2e8 3e8"},
		{0.5, 60, "0.5 1 2 5 10 20 50"},
		{1e-6, 1e-3, "1e−6 1e−5 1e−4 0.001"},
		{2, 5, "2.0 2.5 3.0 3.5 4.0 4.5 5.0"},
		{1e-12, 1e12, "1e−12 1e−9 1e−6 0.001 1 1000 1e6 1e9 1e12"},
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

// luminance returns the relative luminance defined by the Web Content Accessibility Guidelines.
func luminance(c color.Color) float64 {
	linear := func(v uint32) float64 {
		x := float64(v) / 0xffff
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	r, g, b, _ := c.RGBA()
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

// TestRamp checks that the colour scale gets darker from end to end, so that it can be read in
// greyscale, and that numbers on it have the contrast that small text needs (4.5 to 1).
func TestRamp(t *testing.T) {
	previous := math.Inf(1)
	for i := range 101 {
		share := float64(i) / 100
		l := luminance(ramp(share))
		if l > previous {
			t.Errorf("the scale gets lighter at %d %%", i)
		}
		previous = l
		ink := luminance(textOn(share))
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
		if got := shorten("a rather long label", style,
			vg.Length(test.share)*full*1.0001); got != test.want {
			t.Errorf("%v of the width holds %q, want %q", test.share, got, test.want)
		}
	}
}

// TestPlacesAreToldApart checks that series of the same colour have different symbols in the
// legend, which are drawn like the series themselves.
func TestPlacesAreToldApart(t *testing.T) {
	for name, tc := range map[string]struct {
		places  int
		picture func(place int) plot.Thumbnailer
	}{
		"marks":  {7 * Colors, func(i int) plot.Thumbnailer { return Series{Marks: true}.thumbnail(i) }},
		"lines":  {3 * Colors, func(i int) plot.Thumbnailer { return Series{Line: Solid}.thumbnail(i) }},
		"varied": {4 * Colors, func(i int) plot.Thumbnailer { return Series{Line: Varied}.thumbnail(i) }},
		"keys": {7 * Colors,
			func(i int) plot.Thumbnailer { return Series{Marks: true, Key: Solid}.thumbnail(i) }},
		"bars": {Colors, func(i int) plot.Thumbnailer { return barPicture(i) }},
	} {
		seen := map[string]int{}
		for place := range tc.places {
			var b bytes.Buffer
			img := vgimg.New(pictureWidth, rowHeight)
			c := draw.New(img)
			tc.picture(place).Thumbnail(&c)
			if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[b.String()]; ok {
				t.Errorf("%s: places %d and %d look the same", name, other, place)
			}
			seen[b.String()] = place
		}
	}
	// The line beside a mark in the legend has the style of a series with lines.
	key, line := Series{Marks: true, Key: Solid}.thumbnail(Colors), Solid.style(Colors)
	if len(key.line.Dashes) == 0 || len(key.line.Dashes) != len(line.Dashes) ||
		key.line.Color != line.Color {
		t.Errorf("the legend has the line %+v, the curve %+v", key.line, line)
	}
}
