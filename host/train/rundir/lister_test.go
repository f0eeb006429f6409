package rundir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// TestLister: a list follows what happens in the directories.
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
	if err := os.Chtimes(filepath.Join(root, "a", "run.toml"), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	want("from an archive without times", "a done, b unreadable")
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	want("it is gone", "b unreadable")
}
