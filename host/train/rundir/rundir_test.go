package rundir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestRemoveAbandoned checks that the temporary files that a killed writer of atomically written
// files has left are removed, and that everything else stays.
func TestRemoveAbandoned(t *testing.T) {
	dir := t.TempDir()
	kept := []string{".lock", ".metrics.jsonl.cage-unfinished-1", ".notes.txt.cage-unfinished-1",
		".run.toml1", "tokenizer.json", "tokenizer.json1"}
	var left []string
	for i, name := range []string{"run.toml", "provenance.json", "summary.json", "tokenizer.json",
		"tokenizer_config.json",
		"special_tokens_map.json", "chat_template.jinja", "generation_config.json"} {
		left = append(left, fmt.Sprintf(".%s.cage-unfinished-%d", name, i))
	}
	for _, name := range append(left, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := rundir.At(dir).RemoveAbandoned(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if diff := cmp.Diff(kept, there); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

func TestPlaces(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	for _, c := range []struct {
		search rundir.Search
		path   string
		want   []string
	}{
		{rundir.Search{Run: "runs/a", WorkDir: "/made"}, "data/val",
			[]string{"data/val", "/made/data/val", filepath.Join(here, "runs/a/data/val")}},
		{rundir.Search{Run: "runs/a"}, "data/val",
			[]string{"data/val", filepath.Join(here, "runs/a/data/val")}},
		{rundir.Search{Run: "runs/a", WorkDir: here}, "./val",
			[]string{"./val", filepath.Join(here, "runs/a/val")}},
		{rundir.Search{Run: ".", WorkDir: "/made"}, "val", []string{"val", "/made/val"}},
		{rundir.Search{Run: "runs/a", WorkDir: "/made"}, "/data/val", []string{"/data/val"}},
	} {
		if got := c.search.Candidates(c.path); !slices.Equal(got, c.want) {
			t.Errorf("%+v of %s: %q, want %q", c.search, c.path, got, c.want)
		}
	}
}

// TestFind checks that the first accepted candidate is returned, and that errors name all of them.
func TestFind(t *testing.T) {
	run, made := t.TempDir(), t.TempDir()
	t.Chdir(t.TempDir())
	for _, dir := range []string{run, made} {
		if err := os.WriteFile(filepath.Join(dir, "val"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := rundir.Search{Run: run, WorkDir: made}
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
	if err == nil || strings.Count(err.Error(), "another file") != 2 ||
		!strings.Contains(err.Error(), made) || !strings.Contains(err.Error(), run) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := s.Find("none", only("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
}

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLister checks that a list follows the changes in the directories.
func TestLister(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	var l rundir.Lister
	want := func(what, want string) {
		t.Helper()
		list, err := l.List(t.Context(), root, root)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, filepath.Base(r.Dir)+" "+string(r.State))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	put := func(run, name, text string) {
		t.Helper()
		dir := filepath.Join(root, run)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want("an empty directory", "")
	elsewhere := filepath.Join(filepath.Dir(root), "elsewhere")
	link := filepath.Join(root, "link")
	for _, to := range []string{elsewhere, root} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		want("a link to what is no run", "")
		if to == elsewhere {
			put(filepath.Join("..", "elsewhere"), "run.toml", "seed = 1\n")
			want("a link to a run", "link interrupted")
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "run.toml", "seed = 1\n")
	want("one run", "a interrupted")
	lock, err := rundir.At(filepath.Join(root, "a")).Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	want("it is trained", "a running")
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	want("it has stopped", "a interrupted")
	put("a", "summary.json", `{"completed": true}`)
	put("b", "run.toml", "seed = \n")
	want("it is done, and there is another", "a done, b unreadable")
	if err := os.Chtimes(filepath.Join(root, "a", "run.toml"), time.Unix(0, 0),
		time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	want("from an archive without times", "a done, b unreadable")
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	want("it is gone", "b unreadable")
}

// TestReadFilesOfLinks checks that links are followed in a checkpoint, as a cache of the Hub has
// them, but not in a run directory.
func TestReadFilesOfLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chat_template.jinja", "additional_chat_templates/x.jinja"} {
		dir := vfs.At(t.TempDir())
		link := dir.Join(name)
		if err := errors.Join(link.Dir().MkdirAll(), os.Symlink(outside, link.Name)); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		err := rundir.ReadFiles(files, dir, []string{"chat_template.jinja"})
		if err != nil || string(files[name]) != "text" {
			t.Errorf("%s of a checkpoint is %q: %v", name, files[name], err)
		}
		if err := os.WriteFile(dir.Join("run.toml").Name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		files = map[string][]byte{}
		err = rundir.ReadFiles(files, dir, []string{"chat_template.jinja"})
		if err == nil || !strings.Contains(err.Error(), link.Name) || len(files) > 0 {
			t.Errorf("%s of a run is %q: %v", name, files[name], err)
		}
	}
}

func TestReadDescriptionOfLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	dir := vfs.At(t.TempDir())
	link := dir.Join("generation_config.json").Name
	err := errors.Join(os.WriteFile(outside, []byte("{}"), 0o600), os.Symlink(outside, link))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := rundir.ReadDescription(dir.Name); err != nil || string(d.Generation) != "{}" {
		t.Errorf("of a checkpoint: %q, %v", d.Generation, err)
	}
	if err := os.WriteFile(dir.Join("run.toml").Name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := rundir.ReadDescription(dir.Name); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("of a run: %q, %v", d.Generation, err)
	}
}
