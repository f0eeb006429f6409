package figure_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
)

// simulate returns records like those of a real run: a falling noisy loss, validation at intervals,
// and a λ that ramps up and reduces the quantization error.
func simulate(steps int, floor, lambda float64) []metrics.Record {
	random := rand.New(rand.NewPCG(7, uint64(steps)))
	records := make([]metrics.Record, steps)
	errorRel := 0.013
	for i := range records {
		t := float64(i+1) / float64(steps)
		loss := floor + 3.9*math.Exp(-t*40) + 0.6*math.Exp(-t*4)
		ramp := max(0, (t-0.8)/0.2)
		errorRel *= 1 - 4*ramp*lambda/float64(steps)
		r := metrics.Record{Step: i + 1, Tokens: int64(i + 1),
			Loss: metrics.Number(loss + 0.05*random.NormFloat64()), Lambda: metrics.Some(lambda * ramp)}
		if lambda >= 0 {
			r.ErrorRel = metrics.Some(errorRel * (1 + 0.1*math.Exp(-t*10)))
		}
		if (i+1)%(steps/12) == 0 {
			r.ValLoss = metrics.Some(loss + 0.03)
		}
		records[i] = r
	}
	return records
}

func compare() []figure.Run {
	full := simulate(3000, 1.52, 0)
	for i := range full {
		full[i].ErrorRel = nil
	}
	return []figure.Run{{"QuEST W4A4 + CAGE", simulate(3000, 1.60, 2)},
		{"QuEST W4A4", simulate(3000, 1.66, 0)}, {"full precision", full}}
}

func render(t testing.TB, format figure.Format, runs []figure.Run, o figure.Options) []byte {
	t.Helper()
	return drawn(t, format, &figure.Curves{Runs: runs}, o)
}

// labels returns how often each text occurs in an SVG, which must be well-formed.
func labels(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	out := map[string]int{}
	dec := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.CharData:
			if inText {
				out[string(token)]++
			}
		case xml.EndElement:
			inText = false
		}
	}
}

const (
	lossLabel     = "loss (nats per token)"
	relativeLabel = "‖x − Q(x)‖ / ‖x‖  (%)"
	absoluteLabel = "‖x − Q(x)‖"
	lambdaLabel   = "CAGE λ"
)

func TestPanelsFollowTheData(t *testing.T) {
	bare := []metrics.Record{{Step: 1, Tokens: 8, Loss: 3}, {Step: 2, Loss: 2.5}, {Step: 3, Loss: 2}}
	absolute := []metrics.Record{{Step: 1, Tokens: 8, Loss: 3, ErrorNorm2: metrics.Some(4)},
		{Step: 2, Loss: 2, ErrorNorm2: metrics.Some(1)}}
	tests := map[string]struct {
		runs []figure.Run
		want []string
		not  []string
	}{
		"everything": {[]figure.Run{{"run", simulate(300, 2, 1)}},
			[]string{lossLabel, relativeLabel, lambdaLabel, "training, smoothed (faint: as recorded)",
				"validation", "step"}, []string{absoluteLabel, "run"}},
		"CAGE off": {[]figure.Run{{"run", simulate(300, 2, 0)}}, []string{lossLabel, relativeLabel},
			[]string{lambdaLabel}},
		"unquantized": {[]figure.Run{{"run", bare}}, []string{lossLabel, "step"},
			[]string{lambdaLabel, relativeLabel, absoluteLabel, "validation", "training"}},
		"absolute error": {[]figure.Run{{"run", absolute}}, []string{lossLabel, absoluteLabel},
			[]string{relativeLabel}},
		"comparison": {compare(), []string{lossLabel, relativeLabel, lambdaLabel, "QuEST W4A4 + CAGE",
			"QuEST W4A4", "full precision", "training, smoothed", "validation"}, nil},
		"an empty run": {[]figure.Run{{"run", bare}, {"nothing yet", nil}}, []string{lossLabel, "run"},
			[]string{"nothing yet"}},
		"a problem": {[]figure.Run{
			{"run", []metrics.Record{{Step: 1, Loss: 3}, {Step: 2, Loss: 2}}}}, []string{"loss", "step"},
			[]string{lossLabel}},
		"one record": {[]figure.Run{{"run", bare[:1]}}, []string{lossLabel}, nil},
		"constant": {[]figure.Run{
			{"run", []metrics.Record{{Step: 1, Tokens: 8, Loss: 2, Lambda: metrics.Some(1)},
				{Step: 2, Loss: 2, Lambda: metrics.Some(1)}}}}, []string{lambdaLabel}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := labels(t, render(t, figure.SVG, test.runs, figure.Options{}))
			for _, label := range test.want {
				if got[label] != 1 {
					t.Errorf("%q appears %d times among %v", label, got[label], got)
				}
			}
			for _, label := range test.not {
				if got[label] != 0 {
					t.Errorf("%q appears", label)
				}
			}
		})
	}
}

func TestNoData(t *testing.T) {
	nan := metrics.Number(math.NaN())
	for name, runs := range map[string][]figure.Run{"no run": nil, "no record": {{"run", nil}},
		"no number": {{"run", []metrics.Record{{Step: 1, Loss: nan}}}}} {
		if err := figure.Draw(io.Discard, figure.PNG, &figure.Curves{Runs: runs},
			figure.Options{}); !errors.Is(err, figure.ErrNoData) {
			t.Errorf("%s: error %v, want ErrNoData", name, err)
		}
	}
}

// TestOddNumbers checks that no coordinate is NaN if a run has diverged.
func TestOddNumbers(t *testing.T) {
	var records []metrics.Record
	for i, v := range []float64{math.NaN(), 1, math.Inf(1), 2, math.MaxFloat64, -math.MaxFloat64, 1e29,
		-1e29, 5e-324, 0, math.Inf(-1), 3} {
		records = append(records,
			metrics.Record{Step: i, Loss: metrics.Number(v), Lambda: metrics.Some(v),
				ErrorRel: metrics.Some(v), ValLoss: metrics.Some(v)})
	}
	for _, format := range figure.Formats {
		content := render(t, format, []figure.Run{{"run", records}}, figure.Options{})
		if bytes.Contains(content, []byte("NaN")) {
			t.Errorf("%s: a coordinate is not a number", format)
		}
	}
}

// TestPDF checks that a PDF has a constant time, and no text that needs a font.
func TestPDF(t *testing.T) {
	content := render(t, figure.PDF, compare(), figure.Options{Title: "‖x − Q(x)‖ and λ"})
	for text, want := range map[string]bool{"%PDF-1.": true, "/CreationDate (D:19700101": true,
		"/BaseFont": false, "/FontFile": false} {
		if bytes.Contains(content, []byte(text)) != want {
			t.Errorf("%q in the file: want %t", text, want)
		}
	}
}

func TestPNG(t *testing.T) {
	content := render(t, figure.PNG, compare(), figure.Options{Title: "demo", Width: 5, Height: 4})
	img, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != 1000 || b.Dy() != 800 {
		t.Errorf("%d × %d pixels, want 1000 × 800", b.Dx(), b.Dy())
	}
	seen := map[string]bool{}
	for y := range 800 {
		for x := range 1000 {
			r, g, b, a := img.At(x, y).RGBA()
			seen[fmt.Sprintf("%02x%02x%02x%02x", r>>8, g>>8, b>>8, a>>8)] = true
		}
	}
	for _, color := range []string{"ffffffff", "0072b2ff", "d55e00ff", "009e73ff"} {
		if !seen[color] {
			t.Errorf("colour %s is nowhere", color)
		}
	}
}

func TestLongRunsMakeSmallFiles(t *testing.T) {
	svg := render(t, figure.SVG, []figure.Run{{"run", simulate(100_000, 2, 1)}}, figure.Options{})
	if len(svg) > 300_000 {
		t.Errorf("%d bytes for one run", len(svg))
	}
	if !regexp.MustCompile(`font-family:'Liberation Sans',Arial`).Match(svg) {
		t.Error("no font to fall back on")
	}
}

func TestSaveCurves(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"curves.png", "curves.SVG"} {
		if err := figure.Save(filepath.Join(dir, name), &figure.Curves{Runs: compare()},
			figure.Options{Title: "three runs"}); err != nil {
			t.Error(err)
		}
	}
	err := figure.Save(filepath.Join(dir, "curves.gif"), &figure.Curves{Runs: compare()},
		figure.Options{})
	if err == nil || !strings.Contains(err.Error(), ".png, .svg or .pdf") {
		t.Errorf("unknown type: %v", err)
	}
	if err := figure.Save(filepath.Join(dir, "nothing.png"), &figure.Curves{},
		figure.Options{}); !errors.Is(err, figure.ErrNoData) {
		t.Errorf("no data: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d files, %v; want the two that could be drawn", len(entries), err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "figure")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var records []metrics.Record
	for step := 1; step <= 100; step++ {
		records = append(records, metrics.Record{Step: step, Loss: metrics.Number(2 + 3/float64(step))})
	}
	path := filepath.Join(dir, "loss.svg")
	fmt.Println(figure.Save(path, &figure.Curves{Runs: []figure.Run{{Name: "demo", Records: records}}},
		figure.Options{}))
	// Output: <nil>
}

func BenchmarkPNG(b *testing.B) {
	runs := compare()
	for b.Loop() {
		render(b, figure.PNG, runs, figure.Options{})
	}
}
