// Package vfstest reads the contents of directories. It is for tests only.
package vfstest

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// Contents returns the files below a directory, by their slash-separated paths; of a
// symbolic link, where it leads. Lines that contain one of the words in without are left
// out: those that say when something happened, or how long it took.
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
			return slices.ContainsFunc(without, func(word string) bool { return strings.Contains(line, word) })
		}), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
