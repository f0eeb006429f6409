package report_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestSaveRemovesOldFigures checks that Save removes only pictures of figures that are gone.
func TestSaveRemovesOldFigures(t *testing.T) {
	testlevel.Long(t, "saves many reports")
	dir := t.TempDir()
	if _, err := build(t, grid).Save(vfs.At(dir)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "report.md",
		string(text)+"\n![Old](figures/09-old.svg)\n\n[PDF](figures/09-old.pdf)\n")
	write(t, filepath.Join(dir, "figures"), "09-old.png", "")
	write(t, filepath.Join(dir, "figures"), "09-old.pdf", "")
	write(t, filepath.Join(dir, "figures"), "10-mine.png", "")
	write(t, filepath.Join(dir, "figures"), "10-mine.pdf", "")
	write(t, filepath.Join(dir, "figures"), "notes.txt", "")
	write(t, filepath.Join(dir, "figures"), "setup.png", "")
	write(t, dir, "old.svg", "")
	if _, err := build(t, grid).Save(vfs.At(dir)); err != nil {
		t.Fatal(err)
	}
	for path, kept := range map[string]bool{"figures/09-old.png": false, "figures/09-old.pdf": false,
		"figures/10-mine.png": true, "figures/10-mine.pdf": true, "figures/notes.txt": true,
		"figures/setup.png": true, "old.svg": true, "figures/05-paths.svg": true} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != kept {
			t.Errorf("%s is there: %v, want %v", path, err == nil, kept)
		}
	}
}

// TestSaveBesideOthers checks that Save replaces nothing in a directory without a report.
func TestSaveBesideOthers(t *testing.T) {
	testlevel.Long(t, "saves many reports")
	for _, name := range []string{"index.html", "report.md", "report.tex", "figures/05-paths.svg"} {
		dir := t.TempDir()
		write(t, filepath.Dir(filepath.Join(dir, name)), filepath.Base(name), "# My notes\n")
		if _, err := build(t, grid).Save(vfs.At(dir)); err == nil ||
			!strings.Contains(err.Error(), name+" already exists and was not written by cage") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(map[string]string{name: "# My notes\n"},
			vfstest.Contents(t, dir)); diff != "" {
			t.Errorf("%s: the directory differs:\n%s", name, diff)
		}
	}
}

// TestHeatmapsOfSeries checks that a heat map with series becomes one heat map for each.
func TestHeatmapsOfSeries(t *testing.T) {
	text, _, _ := strings.Cut(grid, "[[study.figures]]")
	r := build(t, text+"[[study.figures]]\nkind = \"heatmap\"\ntitle = \"Losses\"\nmetric = "+
		"\"val_loss\"\nx = \"bits\"\ny = \"seed\"\nseries = [\"method\"]")
	var titles []string
	for _, f := range r.Figures {
		titles = append(titles, f.Title+" as "+f.Name)
	}
	want := []string{"Losses: QuEST as 01-losses-quest", "Losses: CAGE as 02-losses-cage", "Losses: " +
		hostile + " as 03-losses-b-lambda-script-script-alert-1-sc",
		"Losses: full precision as 04-losses-full-precision"}
	if diff := cmp.Diff(want, titles); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHostileLabels checks that labels are plain text in every format, whatever their characters.
func TestHostileLabels(t *testing.T) {
	r := build(t, grid)
	html := pageOf(t, r)
	if bytes.Contains(html, []byte("<b>")) || bytes.Contains(html, []byte("<script>alert")) ||
		bytes.Count(html, []byte("</script>")) != 2 {
		t.Errorf("a label is part of the page: %d ends of scripts",
			bytes.Count(html, []byte("</script>")))
	}
	md := string(r.Markdown())
	for l := range strings.Lines(md) {
		if strings.HasPrefix(l, "| 2 ") && strings.Count(strings.ReplaceAll(l, `\|`, ""), "|") > 6 {
			t.Errorf("a label makes a column: %s", l)
		}
	}
}

// TestLongRunsMakeALightPage checks that curves are thinned, so that the page stays small.
func TestLongRunsMakeALightPage(t *testing.T) {
	testlevel.Long(t, "writes runs of many steps")
	text, _, _ := strings.Cut(grid, "[[study.figures]]")
	s := parse(t, text+"[[study.figures]]\nkind = \"curves\"\nmetric = \"loss\"\nseries = "+
		"[\"method\"]\nover = [\"seed\"]\nwhere = {bits = \"2\"}", t.TempDir())
	results(t, s)
	for _, c := range s.Cells {
		var long strings.Builder
		for step := range 20_000 {
			fmt.Fprintf(&long, "{\"step\":%d,\"loss\":%.6f}\n", step+1, 2+math.Sin(float64(step)))
		}
		write(t, c.Dir, "metrics.jsonl", long.String())
	}
	r := reportOf(t, s)
	html := pageOf(t, r)
	if len(html) > 600_000 {
		t.Errorf("the page has %d bytes", len(html))
	}
}
