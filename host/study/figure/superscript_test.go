package figure

import (
	"bytes"
	"image"
	"image/png"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func TestRuns(t *testing.T) {
	for line, want := range map[string][]run{
		"":            nil,
		"loss":        {{"loss", false}},
		"2·10⁻⁰⁹":     {{"2·10", false}, {"−09", true}},
		"x² + y⁺¹⁸ =": {{"x", false}, {"2", true}, {" + y", false}, {"+18", true}, {" =", false}},
	} {
		if diff := cmp.Diff(want, runs(line), cmp.AllowUnexported(run{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

// TestTextIsWhereItsBoxSays: what is drawn fills the box in which it is aligned, raised
// or not, upright or turned; on each side there is at most the space around a character.
func TestTextIsWhereItsBoxSays(t *testing.T) {
	const size = 40 // points, and pixels/2
	for _, line := range []string{"10⁻⁹", "H¹²³⁴⁵⁶⁷⁸⁹⁰", "HHHH"} {
		for _, rotation := range []float64{0, math.Pi / 2} {
			style := textStyle(size)
			style.XAlign, style.YAlign, style.Rotation = draw.XCenter, draw.YCenter, rotation
			var b bytes.Buffer
			err := render(&b, PNG, 400, 400, func(c draw.Canvas) { c.FillText(style, vg.Point{X: 200, Y: 200}, line) })
			if err != nil {
				t.Fatal(err)
			}
			img, err := png.Decode(&b)
			if err != nil {
				t.Fatal(err)
			}
			ink := inked(img)
			scale := float64(dotsPerInch) / 72
			length, start, end := float64(style.Width(line))*scale, float64(ink.Min.X), float64(ink.Max.X)
			if rotation != 0 {
				start, end = float64(ink.Min.Y), float64(ink.Max.Y)
			}
			low, high, slack := 200*scale-length/2, 200*scale+length/2, 0.13*size*scale
			if start < low-1 || start > low+slack || end > high+1 || end < high-slack {
				t.Errorf("%q turned by %.1f: ink from %.0f to %.0f, the box is from %.0f to %.0f", line, rotation, start, end, low, high)
			}
		}
	}
}

// inked is the smallest rectangle with everything that is not background.
func inked(img image.Image) image.Rectangle {
	var out image.Rectangle
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			if r, _, _, _ := img.At(x, y).RGBA(); r < 0x8000 {
				out = out.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return out
}

// TestFontHasEveryCharacter: what the labels of figures are made of is no empty box. Its
// picture would be that of a character that no font has.
func TestFontHasEveryCharacter(t *testing.T) {
	missing := drawn(t, "\U0010FFFD")
	for _, r := range "0123456789−+·‖λκσ–…≈±×∞%()/," {
		if bytes.Equal(drawn(t, string(r)), missing) {
			t.Errorf("the font has no %c", r)
		}
	}
	for superscript := range plain {
		if bytes.Equal(drawn(t, string(superscript)), missing) {
			t.Errorf("%c is an empty box", superscript)
		}
	}
}

func drawn(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b, PNG, 40, 40, func(c draw.Canvas) { c.FillText(textStyle(textSize), vg.Point{X: 10, Y: 10}, text) }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
