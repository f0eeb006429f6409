package study

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The study file that the documentation shows can be read, with the base that it names.
func TestDocumentedStudy(t *testing.T) {
	text, err := os.ReadFile("../../docs/studies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```toml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/studies.md shows no TOML file")
	}
	path, err := filepath.Abs("../../examples/bits.toml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s, err := Parse(path, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cells) != 2*3*3+3 || len(s.Tables) != 1 || len(s.Figures) != 1 {
		t.Errorf("%d cells, %d tables, %d figures", len(s.Cells), len(s.Tables), len(s.Figures))
	}
}
