package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
)

type sourceFile struct {
	path     string
	size     int64     // -1: not known
	number   int       // among the text files
	stdin    io.Reader // in place of a file, if not nil
	format   source.Format
	compress source.Compression
}

const stdinName = "-"

// finder lists files that it has not listed before.
type finder struct {
	include []string
	exclude string                 // the resolved path of the folder that is being written; "": none is
	own     func(name string) bool // which files in it are being written
	rows    bool                   // files of folders are taken only if they have rows
	format  source.Format          // of all files; "": that of their names
	stdin   io.Reader
	seen    map[string]bool // resolved paths: no file is found twice
	added   int             // how many files and folders were added, found before or not
	files   []sourceFile
	leftOut leftOut
}

func newFinder(o *PrepareOptions) (*finder, error) {
	for _, pattern := range o.Include {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("include pattern %q: %w", pattern, err)
		}
	}
	exclude, err := "", error(nil)
	if o.Out != "" {
		exclude, err = realPath(o.Out)
	}
	return &finder{include: o.Include, exclude: exclude, own: dataset.Texts.Owns, format: o.Format, stdin: o.Stdin, seen: make(map[string]bool), leftOut: leftOut{}}, err
}

// find returns the files that inputs name: files as they are, folders with all
// regular files below them in lexical order, patterns as what they match, and in this
// order.
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
	f.added++
	if input == stdinName {
		return f.takeStdin()
	}
	stat, err := os.Stat(input)
	if errors.Is(err, fs.ErrNotExist) && isPattern(input) {
		return f.glob(input)
	}
	if err != nil {
		return err
	}
	resolved, err := realPath(input)
	if err != nil {
		return err
	}
	if stat.Mode().IsRegular() {
		f.take(input, resolved, stat.Size())
		return nil
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
		below, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return f.visit(name, below, filepath.Join(resolved, below), entry)
	})
}

// realPath is the absolute path of a file behind all links; of one that is not there yet,
// the absolute path.
func realPath(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	return resolved, err
}

// visit takes a file of a folder, or says why not. below is its path in the input, resolved its
// real path.
func (f *finder) visit(name, below, resolved string, entry fs.DirEntry) error {
	hidden := strings.HasPrefix(entry.Name(), ".")
	if entry.IsDir() {
		if hidden {
			f.leave(Hidden, resolved, name+string(filepath.Separator))
		}
		if hidden || resolved == f.exclude {
			return filepath.SkipDir
		}
		return nil
	}
	matched := f.matches(name, filepath.ToSlash(below))
	link := entry.Type()&fs.ModeSymlink != 0
	if len(f.include) > 0 && !matched && !(link && isFolder(name)) {
		return nil
	}
	switch {
	case hidden:
		f.leave(Hidden, resolved, name)
	case f.written(resolved):
		f.leave(Own, resolved, name)
	case link:
		f.leave(Link, resolved, name)
	case !entry.Type().IsRegular():
		f.leave(Special, resolved, name)
	default:
		if format, _ := f.kind(name); f.rows && !hasRows(format) {
			f.leave(NoRows, resolved, name)
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f.take(name, resolved, info.Size())
	}
	return nil
}

func isFolder(link string) bool {
	stat, err := os.Stat(link)
	return err == nil && stat.IsDir()
}

func (f *finder) leave(r Reason, resolved, name string) {
	if !f.seen[resolved] {
		f.seen[resolved] = true
		f.leftOut.add(r, name)
	}
}

// matches reports whether one of the patterns fits: one with a slash the path below the
// input, any other the file's name.
func (f *finder) matches(name, below string) bool {
	for _, pattern := range f.include {
		subject := filepath.Base(name)
		if strings.Contains(pattern, "/") {
			subject = below
		}
		if matchElements(strings.Split(pattern, "/"), strings.Split(subject, "/")) {
			return true
		}
	}
	return false
}

func (f *finder) take(name, resolved string, size int64) {
	if !f.seen[resolved] {
		f.seen[resolved] = true
		format, compress := f.kind(name)
		f.files = append(f.files, sourceFile{path: name, size: size, format: format, compress: compress})
	}
}

func (f *finder) kind(name string) (source.Format, source.Compression) {
	format, compress := source.ByName(name)
	if f.format != "" {
		format = f.format
	}
	return format, compress
}

// written reports whether a file is one of those that are being written, of which an earlier
// preparation may have left one.
func (f *finder) written(resolved string) bool {
	return filepath.Dir(resolved) == f.exclude && f.own(filepath.Base(resolved))
}

func (f *finder) takeStdin() error {
	switch {
	case f.stdin == nil:
		return errors.New("there is no standard input to read")
	case f.seen[stdinName]:
		return errors.New("the standard input can be read only once")
	case f.format == "":
		return errors.New("the standard input has no name that says what it is: give --format text, jsonl or parquet")
	}
	f.seen[stdinName] = true
	f.files = append(f.files, sourceFile{path: "standard input", size: -1, stdin: f.stdin, format: f.format})
	return nil
}

// anyDepth is the element of a pattern that stands for any number of folders.
const anyDepth = "**"

// isPattern reports whether an input is meant as a pattern.
func isPattern(input string) bool { return strings.ContainsAny(input, "*?[") }

// matchElements is path.Match with [anyDepth], for a pattern and a path that are cut at their
// slashes.
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

// glob adds what a pattern matches, as if all of it were named. As in a shell, names that begin
// with a dot have to be named with it.
func (f *finder) glob(pattern string) error {
	if strings.Contains(pattern, anyDepth) {
		return fmt.Errorf("pattern %q: ** is for --include: name the directory, and select its files with --include",
			pattern)
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", pattern, err)
	}
	before := f.added
	for _, name := range matches {
		if hidden(pattern, name) {
			continue
		}
		resolved, err := realPath(name)
		switch {
		case err == nil && f.written(resolved):
			f.leave(Own, resolved, name)
			f.added++
		case err == nil && resolved != f.exclude:
			err = f.add(name)
		}
		if err != nil {
			return err
		}
	}
	if f.added == before {
		return fmt.Errorf("no file matches %q", pattern)
	}
	return nil
}

// hidden reports whether an element of a name begins with a dot which that of the pattern has not.
func hidden(pattern, name string) bool {
	elements := strings.Split(filepath.Clean(pattern), string(filepath.Separator))
	for i, e := range strings.Split(filepath.Clean(name), string(filepath.Separator)) {
		if strings.HasPrefix(e, ".") && i < len(elements) && !strings.HasPrefix(elements[i], ".") {
			return true
		}
	}
	return false
}
