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
	leftOut leftOut
}

func newFinder(include []string, exclude string) (*finder, error) {
	for _, pattern := range include {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("include pattern %q: %w", pattern, err)
		}
	}
	exclude, err := filepath.Abs(exclude)
	return &finder{include: include, exclude: exclude, seen: make(map[string]bool), leftOut: leftOut{}}, err
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
		return f.take(input, stat.Size(), f.matches(input, filepath.Base(input)))
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
		return f.visit(root, name, entry)
	})
}

// visit takes a file of a folder, or says why not.
func (f *finder) visit(root, name string, entry fs.DirEntry) error {
	hidden := strings.HasPrefix(entry.Name(), ".")
	if entry.IsDir() {
		abs, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		if hidden {
			f.leave(Hidden, abs, name+string(filepath.Separator))
		}
		if hidden || abs == f.exclude {
			return filepath.SkipDir
		}
		return nil
	}
	below, err := filepath.Rel(root, name)
	if err != nil {
		return err
	}
	matched := f.matches(name, filepath.ToSlash(below))
	link := entry.Type()&fs.ModeSymlink != 0
	if len(f.include) > 0 && !matched && !(link && isFolder(name)) {
		return nil
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	switch {
	case hidden:
		f.leave(Hidden, abs, name)
	case link:
		f.leave(Link, abs, name)
	case !entry.Type().IsRegular():
		f.leave(Special, abs, name)
	default:
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return f.take(name, info.Size(), matched)
	}
	return nil
}

// isFolder tells whether a link leads to a folder.
func isFolder(link string) bool {
	stat, err := os.Stat(link)
	return err == nil && stat.IsDir()
}

// leave counts what is left out, once.
func (f *finder) leave(r Reason, abs, name string) {
	if !f.seen[abs] {
		f.seen[abs] = true
		f.leftOut.add(r, name)
	}
}

// matches tells whether one of the patterns fits: one with a slash the path below the
// input, any other the file's name.
func (f *finder) matches(name, below string) bool {
	for _, pattern := range f.include {
		subject := filepath.Base(name)
		if strings.Contains(pattern, "/") {
			subject = below
		}
		if ok, _ := path.Match(pattern, subject); ok {
			return true
		}
	}
	return false
}

// take adds a file unless an earlier input named it already. Rows of JSON are taken
// only when a pattern insists on them.
func (f *finder) take(name string, size int64, insists bool) error {
	abs, err := filepath.Abs(name)
	switch {
	case err != nil:
		return err
	case rowsByName(name) && !insists:
		f.leave(JSONRows, abs, name)
	case !f.seen[abs]:
		f.seen[abs] = true
		f.files = append(f.files, sourceFile{name, size})
	}
	return nil
}
