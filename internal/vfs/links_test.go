package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// changes holds all methods that change the file or directory at a path.
var changes = map[string]func(path vfs.Path) error{
	"append":     opening(os.O_WRONLY | os.O_APPEND),
	"truncate":   opening(os.O_WRONLY | os.O_TRUNC),
	"create":     opening(os.O_RDWR | os.O_CREATE),
	"create new": opening(os.O_WRONLY | os.O_CREATE | os.O_EXCL),
	"rename":     func(path vfs.Path) error { return path.Rename(path.Dir().Join("other")) },
	"replace":    func(path vfs.Path) error { return path.Dir().Join("new").Rename(path) },
	"remove":     vfs.Path.Remove,
	"lock":       locking(vfs.Path.Lock),
	"share":      locking(vfs.Path.LockShared),
	"mkdir":      vfs.Path.MkdirAll,
	"rmdir":      vfs.Path.RemoveDir,
}

func opening(flag int) func(vfs.Path) error {
	return func(path vfs.Path) error {
		f, err := path.OpenFile(flag, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

func locking(lock func(vfs.Path) (vfs.Lock, error)) func(vfs.Path) error {
	return func(path vfs.Path) error {
		l, err := lock(path)
		if err != nil {
			return err
		}
		return l.Unlock()
	}
}

// TestLinks checks that nothing is changed through a link in place of a file or directory of cage,
// and that the link is kept. A symbolic link in a name given by the user is followed.
func TestLinks(t *testing.T) {
	for what, change := range changes {
		root := t.TempDir()
		in := func(name string) string { return filepath.Join(root, name) }
		put := func(name string) error { return os.WriteFile(in(name), []byte("text"), 0o600) }
		if err := errors.Join(os.MkdirAll(in("mine/empty"), 0o700), os.Mkdir(in("ours"), 0o700),
			put("mine/file"), put("ours/new"),
			os.Symlink("../mine/file", in("ours/file")), os.Symlink("../mine", in("ours/dir")),
			os.Symlink("absent", in("ours/dangling")),
			os.Link(in("mine/file"), in("ours/hard")), os.Symlink("ours", in("link"))); err != nil {
			t.Fatal(err)
		}
		before := vfstest.Contents(t, root)
		for _, name := range []string{"file", "dir", "dangling", "dir/file", "dir/absent", "dir/empty"} {
			err := change(vfs.At(in("ours")).Join(filepath.FromSlash(name)))
			if err == nil || !strings.Contains(err.Error(), in("ours")) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
		if what == "append" || what == "truncate" {
			if err := change(vfs.At(in("ours")).Join("hard")); err == nil ||
				!strings.Contains(err.Error(), "hard link") {
				t.Errorf("%s a hard link: %v", what, err)
			}
		}
		if diff := cmp.Diff(before, vfstest.Contents(t, root)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", what, diff)
		}
		if err := vfs.At(in("link")).Join("new").Remove(); err != nil {
			t.Errorf("through the name that the user has given: %v", err)
		}
	}
}

// TestOnlyFiles checks that only regular files are removed or replaced.
func TestOnlyFiles(t *testing.T) {
	dir := vfs.At(t.TempDir())
	if err := errors.Join(syscall.Mkfifo(dir.Join("pipe").Name, 0o600), dir.Join("directory").
		MkdirAll(), os.WriteFile(dir.Join("file").Name, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"pipe": "is a named pipe",
		"directory": "is a directory"} {
		for what, err := range map[string]error{"remove": dir.Join(name).Remove(),
			"replace": dir.Join("file").Rename(dir.Join(name))} {
			if err == nil || !strings.Contains(err.Error(),
				dir.Join(name).Name+" already exists and "+want) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
	}
	if err := dir.Join("file").RemoveDir(); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file is removed as a directory: %v", err)
	}
	if err := errors.Join(dir.Join("directory").RemoveDir(), dir.Join("file").Remove()); err != nil {
		t.Error(err)
	}
}

// TestLargeFile checks that a file larger than the limit is not read.
func TestLargeFile(t *testing.T) {
	path := vfs.At(filepath.Join(t.TempDir(), "sparse"))
	if err := errors.Join(os.WriteFile(path.Name, nil, 0o600),
		os.Truncate(path.Name, 20<<30)); err != nil {
		t.Fatal(err)
	}
	if text, err := path.ReadSmallFile(64); !errors.Is(err, vfs.ErrTooLarge) || text != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
