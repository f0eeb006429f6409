package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}

func TestWriteCreatesAndReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "", strings.Repeat("long ", 1<<19)} {
		if err := atomicfile.WriteBytes(vfs.At(path), []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != content {
			t.Errorf("read %d bytes, want the %d written", len(got), len(content))
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the directory holds %v", got)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o600 != 0o600 || mode&0o133 != 0 {
		t.Errorf("permissions are %v", mode)
	}
}

func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := atomicfile.WriteBytes(vfs.At(path), []byte("old")); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	err := atomicfile.Write(vfs.At(path), func(w io.Writer) error {
		if seen := read(t, path); seen != "old" {
			t.Errorf("while writing, the file reads %q", seen)
		}
		if _, err := io.WriteString(w, "half of the n"); err != nil {
			t.Error(err)
		}
		return refused
	})
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if got := read(t, path); got != "old" {
		t.Errorf("the file reads %q", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the directory holds %v", got)
	}
}

func TestMissingDirectory(t *testing.T) {
	err := atomicfile.WriteBytes(vfs.At(filepath.Join(t.TempDir(), "absent", "file")), nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one of os.ErrNotExist", err)
	}
}

func called(want string) func(string) bool {
	return func(name string) bool { return name == want }
}

func TestAbandoned(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".file123", ".file", ".file12a", "file123", ".fileother1", ".other1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var during []vfs.Path
	err := atomicfile.Write(vfs.At(filepath.Join(dir, "model")), func(io.Writer) error {
		var err error
		during, err = atomicfile.Abandoned(vfs.At(dir), called("model"))
		return err
	})
	if err != nil || len(during) != 1 {
		t.Errorf("the temporary file of a running Write is not recognised: %v, %v", during, err)
	}
	got, err := atomicfile.Abandoned(vfs.At(dir), called("file"))
	if err != nil || !slices.Equal(got, []vfs.Path{vfs.At(dir).Join(".file123")}) {
		t.Errorf("abandoned: %v, %v", got, err)
	}
	for range 2 {
		if err := atomicfile.RemoveAbandoned(vfs.At(dir), called("file")); err != nil {
			t.Fatal(err)
		}
		if got, want := names(t, dir), []string{".file", ".file12a", ".fileother1", ".other1", "file123", "model"}; !slices.Equal(got, want) {
			t.Errorf("%v are left, want %v", got, want)
		}
	}
}
