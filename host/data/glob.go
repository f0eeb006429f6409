package data

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// anyDepth is the element of a pattern that stands for any number of folders.
const anyDepth = "**"

// isPattern tells whether an input is meant as a pattern.
func isPattern(input string) bool { return strings.ContainsAny(input, "*?[") }

// matchElements is path.Match with [anyDepth], for a pattern and a path that are cut at their slashes.
func matchElements(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == anyDepth {
			for skip := range len(name) + 1 {
				if matchElements(pattern[1:], name[skip:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], name[0]); !ok {
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}

// glob adds what a pattern matches, as if all of it were named.
func (f *finder) glob(pattern string) error {
	elements := strings.Split(filepath.ToSlash(pattern), "/")
	for _, e := range elements {
		if _, err := path.Match(e, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	root := "."
	if elements[0] == "" {
		root, elements = "/", elements[1:]
	}
	before := f.added
	if err := f.expand(root, elements); err != nil {
		return err
	}
	if f.added == before {
		return fmt.Errorf("no file matches %q", pattern)
	}
	return nil
}

// expand adds what the elements of a pattern match below folder.
func (f *finder) expand(folder string, elements []string) error {
	if len(elements) == 0 || len(elements) == 1 && elements[0] == anyDepth {
		return f.add(folder)
	}
	first, rest := elements[0], elements[1:]
	if !isPattern(first) {
		next := filepath.Join(folder, first)
		if _, err := os.Stat(next); err != nil {
			return nil // nothing matches here
		}
		return f.expand(next, rest)
	}
	if first == anyDepth {
		if err := f.expand(folder, rest); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.expandEntry(filepath.Join(folder, e.Name()), e, elements); err != nil {
			return err
		}
	}
	return nil
}

// expandEntry goes on with an entry of a folder. As in a shell, names that begin with a
// dot have to be named with it.
func (f *finder) expandEntry(name string, entry os.DirEntry, elements []string) error {
	first, rest := elements[0], elements[1:]
	if strings.HasPrefix(entry.Name(), ".") && !strings.HasPrefix(first, ".") {
		return nil
	}
	if first == anyDepth {
		if entry.IsDir() && !f.excluded(name) {
			return f.expand(name, elements)
		}
		return nil
	}
	if ok, _ := path.Match(first, entry.Name()); !ok || f.excluded(name) {
		return nil
	}
	if len(rest) > 0 && !entry.IsDir() && !isFolder(name) {
		return nil
	}
	if resolved, err := realPath(name); err == nil && f.written(resolved) {
		f.leave(Own, resolved, name)
		return nil
	}
	return f.expand(name, rest)
}

// excluded tells whether a folder is the one that is being written.
func (f *finder) excluded(name string) bool {
	resolved, err := realPath(name)
	return err == nil && resolved == f.exclude
}
