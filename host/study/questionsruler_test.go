package study

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func longTexts(t *testing.T, files ruler.Files) *rulerQuestions {
	t.Helper()
	list, err := ruler.Select([]string{"fwe", "niah_single_2", "niah_single_1"})
	if err != nil {
		t.Fatal(err)
	}
	return &rulerQuestions{Lengths: []int{1000, 1200}, Samples: 2, Tasks: list, Files: files, Batch: 4}
}

// TestRulerMetrics checks that there are metrics only for tasks whose inputs are given.
func TestRulerMetrics(t *testing.T) {
	names := func(e *rulerQuestions) (list []string) {
		for _, m := range e.Metrics() {
			if !m.Higher {
				t.Errorf("lower is better of %s", m.Name)
			}
			list = append(list, m.Name)
		}
		return list
	}
	without, with := longTexts(t, ruler.Files{}), longTexts(t, ruler.Files{Essay: "essay.txt"})
	if got := strings.Join(names(without), " "); got != "ruler.average ruler.1000 "+
		"ruler.1000.niah_single_1 ruler.1000.fwe ruler.1200 ruler.1200.niah_single_1 ruler.1200.fwe" {
		t.Errorf("without an essay: %s", got)
	}
	if got := names(with); !slices.Contains(got, "ruler.1000.niah_single_2") || len(got) != 9 {
		t.Errorf("with an essay: %s", got)
	}
	if without.ID() == with.ID() {
		t.Error("an input makes no other evaluation")
	}
}

// TestRulerRead checks that scores are read from the report, and that a missing one is an error.
func TestRulerRead(t *testing.T) {
	e := longTexts(t, ruler.Files{})
	out := vfs.At(t.TempDir())
	if _, err := e.Read(out); err == nil || !strings.Contains(err.Error(), outputFile) {
		t.Errorf("of an empty directory: %v", err)
	}
	const length = `{"length": %d, "scores": {"niah_single_1": 50, "fwe": 100}, "average": 75}`
	for lengths, want := range map[string]string{
		fmt.Sprintf(length, 1000): "has no ruler.1200",
		fmt.Sprintf(length, 1000) + "," + strings.Replace(fmt.Sprintf(length, 1200), `, "fwe": 100`, "",
			1): "has no ruler.1200.fwe",
		fmt.Sprintf(length, 1000) + "," +
			fmt.Sprintf(length, 1200): "",
	} {
		testfile.Write(t, out.Join(outputFile).Name, `{"average": 75, "lengths": [`+lengths+`]}`)
		found, err := e.Read(out)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("of %s: %v, want %q", lengths, err, want)
			}
		} else if err != nil || found["ruler.average"] != 75 || found["ruler.1200.niah_single_1"] != 50 ||
			len(found) != len(e.Metrics()) {
			t.Errorf("found %v, %v", found, err)
		}
	}
}

// TestRulerFiles checks that missing inputs are named, and that a changed one changes the hash.
func TestRulerFiles(t *testing.T) {
	dir := t.TempDir()
	e := longTexts(t, ruler.Files{Essay: filepath.Join(dir, "essay.txt")})
	for _, err := range []error{e.Check(), func() error { _, err := e.Rows(); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "essay.txt") {
			t.Errorf("without the file: %v", err)
		}
	}
	var hashes []string
	for _, text := range []string{"One. Two.", "One. Two. Three."} {
		if err := os.WriteFile(e.Files.Essay, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hash, err := e.Rows()
		if err != nil || e.Check() != nil {
			t.Fatal(err, e.Check())
		}
		hashes = append(hashes, hash)
	}
	if hashes[0] == hashes[1] {
		t.Error("another essay has the same hash")
	}
}
