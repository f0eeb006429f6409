package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the messages found into testdata")

// badCase is a file of testdata/bad: run.toml, the overrides one a line ("\n"
// for a line break), and the messages wanted.
type badCase struct {
	path      string
	archive   *txtar.Archive
	toml      []byte
	overrides []string
	want      string
}

func readBadCases(t testing.TB) []badCase {
	t.Helper()
	paths, err := filepath.Glob("testdata/bad/*.txt")
	if err != nil || len(paths) < 25 {
		t.Fatalf("found %d cases in testdata/bad: %v", len(paths), err)
	}
	var cases []badCase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := badCase{path: path, archive: archive}
		for _, f := range archive.Files {
			switch f.Name {
			case "run.toml":
				c.toml = f.Data
			case "set":
				for _, line := range strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n") {
					c.overrides = append(c.overrides, strings.ReplaceAll(line, `\n`, "\n"))
				}
			case "want":
				c.want = string(f.Data)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

func TestBadInputs(t *testing.T) {
	for _, c := range readBadCases(t) {
		t.Run(strings.TrimSuffix(filepath.Base(c.path), ".txt"), func(t *testing.T) {
			_, err := Parse("run.toml", c.toml, c.overrides)
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			if *update {
				c.writeWant(t, got)
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			var e *Error
			if !errors.As(err, &e) || e.Msg == "" {
				t.Errorf("no *Error in %T", err)
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
