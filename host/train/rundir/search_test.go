package rundir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
)

func TestPlaces(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	for _, c := range []struct {
		search rundir.Search
		path   string
		want   []string
	}{
		{rundir.Search{Run: "runs/a", Made: "/made"}, "data/val", []string{"data/val", "/made/data/val", filepath.Join(here, "runs/a/data/val")}},
		{rundir.Search{Run: "runs/a"}, "data/val", []string{"data/val", filepath.Join(here, "runs/a/data/val")}},
		{rundir.Search{Run: "runs/a", Made: here}, "./val", []string{"./val", filepath.Join(here, "runs/a/val")}},
		{rundir.Search{Run: ".", Made: "/made"}, "val", []string{"val", "/made/val"}},
		{rundir.Search{Run: "runs/a", Made: "/made"}, "/data/val", []string{"/data/val"}},
	} {
		if got := c.search.Places(c.path); !slices.Equal(got, c.want) {
			t.Errorf("%+v of %s: %q, want %q", c.search, c.path, got, c.want)
		}
	}
}

// TestFind: the first place that is accepted is taken; the error tells of all of them.
func TestFind(t *testing.T) {
	run, made := t.TempDir(), t.TempDir()
	t.Chdir(t.TempDir())
	for _, dir := range []string{run, made} {
		if err := os.WriteFile(filepath.Join(dir, "val"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := rundir.Search{Run: run, Made: made}
	only := func(content string) func(string) error {
		return func(place string) error {
			text, err := os.ReadFile(place)
			if err == nil && string(text) != content {
				err = errors.New("another file")
			}
			return err
		}
	}
	for _, dir := range []string{run, made} {
		if got, err := s.Find("val", only(dir)); err != nil || got != filepath.Join(dir, "val") {
			t.Errorf("the file of %s: found %q, error %v", dir, got, err)
		}
	}
	_, err := s.Find("val", only("nothing"))
	if err == nil || strings.Count(err.Error(), "another file") != 2 || !strings.Contains(err.Error(), made) || !strings.Contains(err.Error(), run) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := s.Find("none", only("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
}
