package study

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/cage-qat/cage/host/config"
)

var update = flag.Bool("update", false, "write the messages found into testdata")

// badCase is a file of testdata/bad: study.toml and base.toml, and the messages wanted.
type badCase struct {
	path    string
	archive *txtar.Archive
}

func (c badCase) file(name string) []byte {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func badCases(t testing.TB) []badCase {
	t.Helper()
	paths, err := filepath.Glob("testdata/bad/*.txt")
	if err != nil || len(paths) < 20 {
		t.Fatalf("found %d cases in testdata/bad: %v", len(paths), err)
	}
	var cases []badCase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, badCase{path, archive})
	}
	return cases
}

// Every problem of a study file is reported with its place and what would be right, all
// at once.
func TestBadFiles(t *testing.T) {
	for _, c := range badCases(t) {
		t.Run(strings.TrimSuffix(filepath.Base(c.path), ".txt"), func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "study.toml", string(c.file("study.toml")))
			write(t, "base.toml", string(c.file("base.toml")))
			_, err := Load("study.toml")
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			if *update {
				c.writeWant(t, got)
				return
			}
			if diff := cmp.Diff(string(c.file("want")), got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if _, ok := errors.AsType[*config.Error](err); !ok {
				t.Errorf("no *config.Error in %T", err)
			}
		})
	}
}

func (c badCase) writeWant(t *testing.T, got string) {
	kept := c.archive.Files[:0]
	for _, f := range c.archive.Files {
		if f.Name != "want" {
			kept = append(kept, f)
		}
	}
	c.archive.Files = append(kept, txtar.File{Name: "want", Data: []byte(got)})
	if err := os.WriteFile(c.path, txtar.Format(c.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
