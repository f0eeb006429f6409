package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/internal/vfs"
)

func TestMkdirAll(t *testing.T) {
	root := vfs.At(t.TempDir())
	deep := root.Join("a", "b", "c")
	for range 2 { // an existing directory is not an error
		if err := deep.MkdirAll(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := deep.Stat(); err != nil || !info.IsDir() {
		t.Errorf("no directory was made: %v", err)
	}
	file := root.Join("file")
	if err := os.WriteFile(file.Name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []vfs.Path{file, file.Join("below")} {
		if err := path.MkdirAll(); err == nil {
			t.Errorf("%s was made, where a file is", path)
		}
	}
	t.Chdir(root.Name)
	if err := vfs.At("relative/path").MkdirAll(); err != nil {
		t.Error(err)
	}
}

func TestReadFile(t *testing.T) {
	path := vfs.Path{Name: filepath.Join(t.TempDir(), "file")} // a nil file system is OS
	if _, err := path.ReadFile(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
	if there, err := path.Exists(); there || err != nil {
		t.Errorf("of no file: %v, %v", there, err)
	}
	if err := os.WriteFile(path.Name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := path.ReadFile(); err != nil || string(text) != "text" {
		t.Errorf("read %q, %v", text, err)
	}
	if there, err := path.Exists(); !there || err != nil {
		t.Errorf("of a file: %v, %v", there, err)
	}
}

func TestLock(t *testing.T) {
	path := vfs.At(t.TempDir()).Join("lock")
	if locked, err := path.Locked(); locked || err != nil {
		t.Errorf("without a file: %v, %v", locked, err)
	}
	lock, err := path.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := path.Lock(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	if locked, err := path.Locked(); !locked || err != nil {
		t.Errorf("while it is held: %v, %v", locked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := path.AwaitLock(ctx, time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended: %v", err)
	}
	go lock.Unlock()
	again, err := path.AwaitLock(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
	if locked, err := path.Locked(); locked || err != nil {
		t.Errorf("after it was let go: %v, %v", locked, err)
	}
}

// TestLockShared checks that several holders can share a lock, and that shared and exclusive locks
// exclude each other.
func TestLockShared(t *testing.T) {
	path := vfs.At(t.TempDir()).Join("lock")
	first, err := path.LockShared()
	if err != nil {
		t.Fatal(err)
	}
	second, err := path.AwaitSharedLock(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := path.Locked(); locked || err != nil {
		t.Errorf("a shared lock counts as one that somebody has alone: %v", err)
	}
	if _, err := path.Lock(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a shared lock was taken alone: %v", err)
	}
	if err := errors.Join(first.Unlock(), second.Unlock()); err != nil {
		t.Fatal(err)
	}
	alone, err := path.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := path.LockShared(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a lock that somebody has alone was shared: %v", err)
	}
	if err := alone.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestLockOfAPipe checks that a named pipe in place of a lock file is an error, and does not block.
func TestLockOfAPipe(t *testing.T) {
	path := vfs.At(t.TempDir()).Join("lock")
	if err := syscall.Mkfifo(path.Name, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if locked, err := path.Locked(); locked || err == nil ||
			!strings.Contains(err.Error(), path.Name+": is a named pipe") {
			t.Errorf("%v, %v", locked, err)
		}
		if _, err := path.Lock(); err == nil || !strings.Contains(err.Error(), "is a named pipe") {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
}

func TestReadSmallFile(t *testing.T) {
	path := vfs.At(t.TempDir()).Join("file")
	if err := os.WriteFile(path.Name, []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := path.ReadSmallFile(4); err != nil || string(text) != "1234" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := path.ReadSmallFile(3); text != nil || err == nil ||
		!strings.Contains(err.Error(), path.Name+" is too large: want at most 3 bytes") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := path.Join("below").ReadSmallFile(4); err == nil {
		t.Error("a file below a file is read")
	}
}

// wrapped wraps a file, as file systems for tests do.
type wrapped struct{ vfs.File }

func (w wrapped) Unwrap() vfs.File { return w.File }

func TestOSFile(t *testing.T) {
	path := vfs.At(t.TempDir()).Join("file")
	f, err := path.OpenFile(os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := vfs.OSFile(wrapped{wrapped{f}})
	if err != nil || got != f {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := vfs.OSFile(struct{ vfs.File }{f}); err == nil {
		t.Error("a file that hides what it is was taken for one of the operating system")
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "vfs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	run := vfs.At(dir).Join("runs", "demo")
	fmt.Println(run.MkdirAll(), run.Base())
	f, err := run.Join("notes").OpenFile(os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(f, "kept")
	fmt.Println(errors.Join(f.Sync(), f.Close(), run.SyncDir()))
	text, err := run.Join("notes").ReadFile()
	fmt.Println(string(text), err)
	// Output:
	// <nil> demo
	// <nil>
	// kept <nil>
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
