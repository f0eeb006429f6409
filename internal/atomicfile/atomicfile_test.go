package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/faultfs"
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

// TestPermissions checks that a file which replaces another one is not readable by more people.
func TestPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteBytes(vfs.At(path), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is %v, %v", info.Mode(), err)
	}
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
	const left = ".file.cage-unfinished-123"
	kept := []string{".file", ".file.cage-unfinished-12a", ".file123", ".fileother.cage-unfinished-1",
		".other.cage-unfinished-1", "file.cage-unfinished-123"}
	for _, name := range append([]string{left}, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Abandoned must ignore anything but regular files.
	if err := errors.Join(os.Symlink(".file", filepath.Join(dir, ".file.cage-unfinished-1")),
		os.Mkdir(filepath.Join(dir, ".file.cage-unfinished-2"), 0o700),
		syscall.Mkfifo(filepath.Join(dir, ".file.cage-unfinished-3"), 0o600)); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, ".file.cage-unfinished-1", ".file.cage-unfinished-2",
		".file.cage-unfinished-3", "model")
	slices.Sort(kept)
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
	if err != nil || !slices.Equal(got, []vfs.Path{vfs.At(dir).Join(left)}) {
		t.Errorf("abandoned: %v, %v", got, err)
	}
	for range 2 {
		if err := atomicfile.RemoveAbandoned(vfs.At(dir), called("file")); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, kept) {
			t.Errorf("%v are left, want %v", got, kept)
		}
	}
}

func TestCheckOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	never := func(io.Reader) bool { return false }
	if err := atomicfile.CheckOurs(vfs.At(path), never); err != nil {
		t.Errorf("where nothing is: %v", err)
	}
	if err := os.WriteFile(path, []byte("CAGE and more"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		ours func(io.Reader) bool
		want bool
	}{
		"never":            {never, false},
		"the same":         {atomicfile.Is([]byte("CAGE and more")), true},
		"less":             {atomicfile.Is([]byte("CAGE and mor")), false},
		"more":             {atomicfile.Is([]byte("CAGE and more of it")), false},
		"nothing":          {atomicfile.Is(nil), false},
		"the beginning":    {atomicfile.Begins("CAGE"), true},
		"another":          {atomicfile.Begins("CAFE"), false},
		"a longer mark":    {atomicfile.Begins("CAGE and more of it"), false},
		"any beginning":    {atomicfile.Begins(""), true},
		"the whole as one": {atomicfile.Begins("CAGE and more"), true},
	} {
		err := atomicfile.CheckOurs(vfs.At(path), c.ours)
		if (err == nil) != c.want || err != nil &&
			!strings.Contains(err.Error(), path+" already exists and was not written by cage") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCheckOursFaults checks that a read error is not reported as a file that cage did not write.
func TestCheckOursFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("CAGE"), 0o644); err != nil {
		t.Fatal(err)
	}
	for files := range faultfs.Each(t, 1, 3) {
		err := atomicfile.CheckOurs(vfs.On(files, path), atomicfile.Begins("CAGE"))
		files.Reported(t, err)
		if fault := new(faultfs.Error); err != nil &&
			(!errors.As(err, &fault) || strings.Contains(err.Error(), "not written by cage")) {
			t.Error(err)
		}
	}
}

// TestTarget checks that writing to a symbolic link replaces the file that it points to, not the
// link, and that dangling links and anything but regular files are refused.
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
	for name, want := range map[string]string{"pipe": "not a regular file", ".": "not a regular file",
		"dangling": "symbolic link to a file that does not exist"} {
		if path, err := atomicfile.Target(in(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, path, err)
		}
	}
}
