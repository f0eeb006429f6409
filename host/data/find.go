package data

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// sourceFile is a file that documents are taken from.
type sourceFile struct {
	path string
	size int64
}

// finder lists files that it has not listed before.
type finder struct {
	include []string
	exclude string          // the folder that is being written, absolute
	seen    map[string]bool // absolute paths: no file is found twice
	files   []sourceFile
}

func newFinder(include []string, exclude string) (*finder, error) {
	for _, pattern := range include {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("include pattern %q: %w", pattern, err)
		}
	}
	exclude, err := filepath.Abs(exclude)
	return &finder{include: include, exclude: exclude, seen: make(map[string]bool)}, err
}

// find returns the files that inputs name: files as they are, folders with all
// regular files below them in lexical order, and in this order.
func (f *finder) find(inputs []string) ([]sourceFile, error) {
	f.files = nil
	for _, input := range inputs {
		if err := f.add(input); err != nil {
			return nil, err
		}
	}
	return f.files, nil
}

func (f *finder) add(input string) error {
	stat, err := os.Stat(input)
	if err != nil {
		return err
	}
	if stat.Mode().IsRegular() {
		return f.take(input, stat.Size())
	}
	if !stat.IsDir() {
		return fmt.Errorf("%s is neither a file nor a folder", input)
	}
	// A link given as input is followed, so that the walk begins in a folder.
	root, err := filepath.EvalSymlinks(input)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".")
		if entry.IsDir() {
			if abs, err := filepath.Abs(name); err != nil || hidden || abs == f.exclude {
				return filepath.SkipDir
			}
			return nil
		}
		if hidden || !entry.Type().IsRegular() || !f.included(root, name) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return f.take(name, info.Size())
	})
}

// included matches a pattern with a slash against the path below the input,
// any other against the file's name.
func (f *finder) included(root, name string) bool {
	if len(f.include) == 0 {
		return true
	}
	below, err := filepath.Rel(root, name)
	if err != nil {
		return false
	}
	below = filepath.ToSlash(below)
	for _, pattern := range f.include {
		subject := path.Base(below)
		if strings.Contains(pattern, "/") {
			subject = below
		}
		if ok, _ := path.Match(pattern, subject); ok {
			return true
		}
	}
	return false
}

// take adds a file unless an earlier input named it already.
func (f *finder) take(name string, size int64) error {
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if !f.seen[abs] {
		f.seen[abs] = true
		f.files = append(f.files, sourceFile{name, size})
	}
	return nil
}
