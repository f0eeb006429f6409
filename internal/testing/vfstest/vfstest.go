// Package vfstest provides a file system that does not wait for the disk, and reads directories for
// comparison. It is for tests only.
package vfstest

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/vfs"
)

// NoSync is the operating system's file system, except that a sync does nothing. It is for tests of
// file operations; power failures are simulated by crashfs.
var NoSync vfs.FS = noSync{vfs.OS}

type noSync struct{ vfs.FS }

func (n noSync) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := n.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

// SyncDir only checks that the directory exists.
func (n noSync) SyncDir(name string) error {
	_, err := n.Stat(name)
	return err
}

type noSyncFile struct{ vfs.File }

func (noSyncFile) Sync() error { return nil }

// Unwrap returns the underlying file for vfs.OSFile.
func (f noSyncFile) Unwrap() vfs.File { return f.File }

// Contents returns the files below a directory by slash-separated path, and the targets of symbolic
// links. It omits lines that contain one of the words in without, such as lines with times.
func Contents(t testing.TB, dir string, without ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			out[name], err = fs.ReadLink(root, name)
			return err
		}
		text, err := fs.ReadFile(root, name)
		lines := strings.SplitAfter(string(text), "\n")
		out[name] = strings.Join(slices.DeleteFunc(lines, func(line string) bool {
			return slices.ContainsFunc(without,
				func(word string) bool { return strings.Contains(line, word) })
		}), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
