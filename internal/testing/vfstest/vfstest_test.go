package vfstest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestContents checks that the files of all directories are returned, without the omitted lines.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "one\nseconds: 3\ntwo", "below/b": "",
		"c": "seconds\n"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"a": "one\ntwo", "below/b": "", "c": ""}
	if diff := cmp.Diff(want, vfstest.Contents(t, dir, "seconds")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoSync checks that files are written and renamed as usual, and are those of the operating
// system.
func TestNoSync(t *testing.T) {
	dir := vfs.On(vfstest.NoSync, t.TempDir())
	f, err := dir.Join("new").OpenFile(os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.OSFile(f); err != nil {
		t.Error(err)
	}
	_, err = f.Write([]byte("text"))
	if err := errors.Join(err, f.Sync(), f.Close(), dir.Join("new").Rename(dir.Join("kept")),
		dir.SyncDir()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"kept": "text"}, vfstest.Contents(t, dir.Name)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := dir.Join("none").SyncDir(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a sync of no directory: %v", err)
	}
}
