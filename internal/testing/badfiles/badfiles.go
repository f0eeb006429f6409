// Package badfiles tests the error messages for mistakes in configuration files.
//
// Each case is a txtar archive in testdata/bad of the tested package. It contains the input files
// and, in the member "want", the expected messages. With -update, the actual messages are written
// to that member.
package badfiles

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the messages found into testdata/bad")

// want is the archive member with the expected messages.
const want = "want"

// Case is one archive.
type Case struct {
	path    string
	archive *txtar.Archive
}

// File returns a member of the archive, or nil if there is none.
func (c Case) File(name string) []byte {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// Read reads all cases. It fails the test if there are fewer than least.
func Read(t testing.TB, least int) []Case {
	t.Helper()
	paths, err := filepath.Glob("testdata/bad/*.txt")
	if err != nil || len(paths) < least {
		t.Fatalf("found %d cases in testdata/bad, want at least %d: %v", len(paths), least, err)
	}
	var cases []Case
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Abs(path); err != nil { // a test may change the working directory
			t.Fatal(err)
		}
		cases = append(cases, Case{path, archive})
	}
	return cases
}

// Test runs load on every case and compares the error with the expected messages.
func Test(t *testing.T, least int, load func(*testing.T, Case) error) {
	for _, c := range Read(t, least) {
		t.Run(strings.TrimSuffix(filepath.Base(c.path), ".txt"), func(t *testing.T) {
			err := load(t, c)
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			if *update {
				c.write(t, got)
				return
			}
			if diff := cmp.Diff(string(c.File(want)), got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

func (c Case) write(t *testing.T, got string) {
	kept := c.archive.Files[:0]
	for _, f := range c.archive.Files {
		if f.Name != want {
			kept = append(kept, f)
		}
	}
	c.archive.Files = append(kept, txtar.File{Name: want, Data: []byte(got)})
	if err := os.WriteFile(c.path, txtar.Format(c.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
