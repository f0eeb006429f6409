package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/vfs"
)

type sourceFile struct {
	path     string
	size     int64
	number   int32 // index among the text files
	format   source.Format
	compress source.Compression
}

// open returns a reader of the decompressed text and, as direct, the file itself if it is not
// compressed. raw wraps the reader of the stored bytes.
func (f *sourceFile) open(raw func(io.Reader) io.Reader) (
	text io.Reader, direct vfs.File, close func(), err error,
) {
	close = func() {}
	if f.format == source.Parquet && f.compress != source.None {
		return nil, nil, close, errors.New("a Parquet file cannot be compressed as a whole, " +
			"because it is read from its end: decompress the file")
	}
	file, err := vfs.At(f.path).Open()
	if err != nil {
		return nil, nil, close, err
	}
	if f.compress == source.None {
		return raw(file), file, func() { file.Close() }, nil
	}
	unpacked, err := source.Decompress(raw(file), f.compress)
	if err != nil {
		file.Close()
		return nil, nil, close, err
	}
	return unpacked, nil, func() { unpacked.Close(); file.Close() }, nil
}

// finder finds input files, and returns each only once.
type finder struct {
	include []string
	exclude string          // the resolved path of the output folder; "": none
	kind    dataset.Kind    // of the dataset in the output folder
	rows    bool            // files in folders are used only if they have rows
	format  source.Format   // of all files; "": determined by their names
	seen    map[string]bool // resolved paths of the files found so far
	files   []sourceFile
	leftOut leftOut
}

func newFinder(o *PrepareOptions, kind dataset.Kind) (*finder, error) {
	for _, pattern := range o.Include {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("include pattern %q: %w", pattern, err)
		}
		if strings.Contains(pattern, "**") {
			return nil, fmt.Errorf("include pattern %q: ** is not supported; "+
				"a pattern without a slash matches names at any depth", pattern)
		}
	}
	f := &finder{include: o.Include, kind: kind, format: o.Format,
		seen: map[string]bool{}, leftOut: leftOut{}}
	var err error
	if o.Out != "" {
		f.exclude, err = realPath(o.Out)
	}
	return f, err
}

// find returns the files in inputs and, for each folder in inputs, all regular files below it in
// lexical order.
func (f *finder) find(inputs []string) ([]sourceFile, error) {
	f.files = nil
	for _, input := range inputs {
		if err := f.addInput(input); err != nil {
			return nil, err
		}
	}
	return f.files, nil
}

func (f *finder) addInput(input string) error {
	stat, err := os.Stat(input)
	if err != nil {
		return err
	}
	resolved, err := realPath(input)
	switch {
	case err != nil:
		return err
	case stat.Mode().IsRegular() && f.isOutput(resolved):
		f.skip(Own, resolved, input)
		return nil
	case stat.Mode().IsRegular():
		f.addFile(input, resolved, stat.Size())
		return nil
	case !stat.IsDir():
		return fmt.Errorf("%s is neither a file nor a folder", input)
	}
	// A link given as input is followed, so that the walk begins at a folder.
	root, err := filepath.EvalSymlinks(input)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return f.visit(name, relative, filepath.Join(resolved, relative), entry)
	})
}

// realPath returns the absolute path of a file, with all links resolved if the file exists.
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

// visit adds a file found in a folder, or records why it is left out. relative is its path within
// the input, and resolved is its real path.
func (f *finder) visit(name, relative, resolved string, entry fs.DirEntry) error {
	hidden := strings.HasPrefix(entry.Name(), ".")
	if entry.IsDir() {
		if hidden {
			f.skip(Hidden, resolved, name+string(filepath.Separator))
		}
		if hidden || resolved == f.exclude {
			return filepath.SkipDir
		}
		return nil
	}
	link := entry.Type()&fs.ModeSymlink != 0
	if len(f.include) > 0 && !f.matches(name, filepath.ToSlash(relative)) {
		if stat, err := os.Stat(name); !link || err != nil || !stat.IsDir() {
			return nil
		}
	}
	format, _ := source.ByName(name)
	switch {
	case hidden:
		f.skip(Hidden, resolved, name)
	case f.isOutput(resolved):
		f.skip(Own, resolved, name)
	case link:
		f.skip(Link, resolved, name)
	case !entry.Type().IsRegular():
		f.skip(Special, resolved, name)
	case f.rows && !hasRows(format):
		f.skip(NoRows, resolved, name)
	default:
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f.addFile(name, resolved, info.Size())
	}
	return nil
}

func (f *finder) skip(r Reason, resolved, name string) {
	if !f.seen[resolved] {
		f.seen[resolved] = true
		f.leftOut.add(r, name)
	}
}

func (f *finder) addFile(name, resolved string, size int64) {
	if f.seen[resolved] {
		return
	}
	f.seen[resolved] = true
	format, compress := source.ByName(name)
	if f.format != "" {
		format = f.format
	}
	f.files = append(f.files, sourceFile{path: name, size: size, format: format, compress: compress})
}

// isOutput reports whether a file is part of the dataset in the output folder.
func (f *finder) isOutput(resolved string) bool {
	return filepath.Dir(resolved) == f.exclude && f.kind.Owns(filepath.Base(resolved))
}

// matches reports whether an include pattern matches a file: its path within the input if the
// pattern has a slash, or else its name.
func (f *finder) matches(name, relative string) bool {
	return slices.ContainsFunc(f.include, func(pattern string) bool {
		target := filepath.Base(name)
		if strings.Contains(pattern, "/") {
			target = relative
		}
		matched, _ := path.Match(pattern, target)
		return matched
	})
}
