package vfstest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/vfs/vfstest"
)

// TestContents: files of all folders are there, without the lines that are left out.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "one\nseconds: 3\ntwo", "below/b": "", "c": "seconds\n"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"a": "one\ntwo", "below/b": "", "c": ""}
	if diff := cmp.Diff(want, vfstest.Contents(t, dir, "seconds")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
