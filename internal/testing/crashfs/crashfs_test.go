package crashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/vfs"
)

const seeds = 40

// found counts the contents that a file can have after power failures at all moments. A missing
// file counts as "none".
func found(t *testing.T, f *crashfs.FS, name string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for m := range f.Moments() + 1 {
		for seed := range uint64(seeds) {
			dir := t.TempDir()
			if err := f.Lose(m, seed, dir); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				content = []byte("none")
			} else if err != nil {
				t.Fatal(err)
			}
			out[string(content)]++
		}
	}
	return out
}

func record(t *testing.T, before string) (*crashfs.FS, vfs.Path) {
	t.Helper()
	dir := t.TempDir()
	if before != "" {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f, vfs.On(f, dir).Join("file")
}

// TestAtomicFile checks that a file replaced by package atomicfile is the old or the new one.
func TestAtomicFile(t *testing.T) {
	f, path := record(t, "old text")
	if err := atomicfile.WriteBytes(path, []byte("new text, longer")); err != nil {
		t.Fatal(err)
	}
	if got := found(t, f, "file"); len(got) != 2 || got["old text"] == 0 ||
		got["new text, longer"] == 0 {
		t.Errorf("found %v, want the old text and the new one", got)
	}
}

// TestCareless checks that a file which is renamed without a sync can have any content.
func TestCareless(t *testing.T) {
	f, path := record(t, "")
	temp := path.Dir().Join("temp")
	file, err := temp.OpenFile(os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), temp.Rename(path), path.Dir().SyncDir()); err != nil {
		t.Fatal(err)
	}
	got := found(t, f, "file")
	if got["none"] == 0 || got[""] == 0 || got["content"] == 0 || got[string(make([]byte, 7))] == 0 ||
		len(got) < 8 {
		t.Errorf("found %v, want none, the content, nothing, parts, zeros and garbage", got)
	}
}

// TestAppend checks that synced content is kept whatever happens to the rest, and that a name can
// be lost while its directory is not synced.
func TestAppend(t *testing.T) {
	f, path := record(t, "")
	file, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := path.Dir().SyncDir(); err != nil {
		t.Fatal(err)
	}
	made := f.Moments()
	for _, text := range []string{"one", "two"} {
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(1); err != nil {
		t.Fatal(err)
	}
	for m, least := range map[int]string{made: "", made + 2: "one", made + 4: "onetwo", made +
		5: "o"} {
		for seed := range uint64(seeds) {
			dir := t.TempDir()
			if err := f.Lose(m, seed, dir); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(filepath.Join(dir, "file"))
			if err != nil || len(content) < len(least) || string(content[:len(least)]) != least {
				t.Errorf("after %d events: %q, %v; want %q at least", m, content, err, least)
			}
		}
	}
	if got := found(t, f, "file"); got["none"] == 0 {
		t.Error("the name never gets lost, though at first the directory is not synced")
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "crashfs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	root, after := filepath.Join(dir, "root"), filepath.Join(dir, "after")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(after, 0o755)); err != nil {
		fmt.Println(err)
		return
	}
	files, err := crashfs.New(root)
	if err != nil {
		fmt.Println(err)
		return
	}
	kept := vfs.On(files, root).Join("kept")
	if err := atomicfile.WriteBytes(kept, []byte("text")); err != nil {
		fmt.Println(err)
		return
	}
	err = files.Lose(files.Moments(), 0, after)
	text, readErr := os.ReadFile(filepath.Join(after, "kept"))
	fmt.Println(string(text), err, readErr)
	// Output: text <nil> <nil>
}
