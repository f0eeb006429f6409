package figure

import (
	"bytes"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

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
