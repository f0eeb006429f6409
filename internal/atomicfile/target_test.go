package atomicfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
)

// TestTarget: a file that a link leads to is replaced and not the link, and nothing that is no file.
func TestTarget(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("file"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", in("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("gone", in("dangling")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(in("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := atomicfile.Target(in("link"))
	if err == nil {
		err = atomicfile.WriteBytes(path, []byte("new"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(in("file")); err != nil || string(text) != "new" {
		t.Errorf("behind the link stands %q, %v", text, err)
	}
	if info, err := os.Lstat(in("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if path, err := atomicfile.Target(in("new")); err != nil || path.Name != in("new") {
		t.Errorf("a new file: %v, %v", path, err)
	}
	for name, want := range map[string]string{"pipe": "no regular file", ".": "no regular file", "dangling": "leads nowhere"} {
		if path, err := atomicfile.Target(in(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, path, err)
		}
	}
}
