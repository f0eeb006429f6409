package report_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/vfs"
)

// A report can be written before any cell is done, and says so.
func TestNothingIsDone(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "bits"))
	r, err := reportOf(s)
	if err != nil {
		t.Fatal(err)
	}
	files, err := r.Save(vfs.At(t.TempDir()))
	if err != nil || !slices.Equal(files, []string{"report.md", "report.csv", "report.tex", "index.html"}) {
		t.Errorf("files %v, %v", files, err)
	}
	if text := string(r.Markdown()); !strings.Contains(text, "0 of 19 cells are done, 19 missing.") || !strings.Contains(text, "No cell of this figure is done, or none has a value that can be drawn.") || !strings.Contains(text, "No cell of this table is done.") {
		t.Errorf("the report says\n%s", text)
	}
}

// TestEveryRunDiverged: figures without a value that has a place on their axes are empty, and the rest of the report is written.
func TestEveryRunDiverged(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "bits"))
	for i, c := range s.Cells {
		run(t, c, math.Inf(1), uint64(i))
	}
	r, err := reportOf(s)
	if err != nil {
		t.Fatal(err)
	}
	empty := 0
	for _, f := range r.Figures {
		if f.Empty() {
			empty++
		}
	}
	files, err := r.Save(vfs.At(t.TempDir()))
	if err != nil || !slices.Contains(files, "index.html") || empty < 3 || len(files) != 4+2*(len(r.Figures)-empty) {
		t.Errorf("files %v with %d of %d figures empty, %v", files, empty, len(r.Figures), err)
	}
}
