package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"

	"github.com/cage-qat/cage/internal/vfs"
)

// Shards holds the open files that together contain the tensors of one checkpoint.
type Shards struct {
	names []string // of the files, sorted
	files map[string]*File
	of    map[string]*File // by tensor
}

// Bounds of an index, several times those of the largest published checkpoints: its size in bytes, the tensors that it
// names, and their files.
const (
	maxIndexSize  = 50_000_000
	maxIndexNames = 500_000
	maxIndexFiles = 10_000
)

// OpenShards opens the checkpoint in a directory: its [SingleName], or else all files that its [IndexName] names. Every
// tensor must be where the index says, and the files must contain no others. The error lists all problems. It wraps
// fs.ErrNotExist if the directory has neither file, and ErrFormat if the content is at fault.
func OpenShards(dir vfs.Path) (*Shards, error) {
	s := &Shards{files: map[string]*File{}, of: map[string]*File{}}
	single, err := Open(dir.Join(SingleName))
	if err == nil {
		s.add(SingleName, single)
	} else if errors.Is(err, fs.ErrNotExist) {
		if err = s.openAll(dir); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s has neither %s nor %s: %w", dir, SingleName, IndexName, fs.ErrNotExist)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Shards) add(name string, f *File) {
	s.names = append(s.names, name)
	s.files[name] = f
	for _, info := range f.header.infos {
		s.of[info.Name] = f
	}
}

func (s *Shards) openAll(dir vfs.Path) error {
	path := dir.Join(IndexName)
	text, err := readIndex(path)
	if err != nil {
		return err
	}
	x, err := parseIndex(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var faults []string
	places := x.places()
	for _, name := range x.files() {
		f, err := Open(dir.Join(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			faults = append(faults, "there is no file "+name+", which weight_map names")
		case errors.Is(err, ErrFormat) || errors.Is(err, ErrChecksum):
			faults = append(faults, err.Error())
		case err != nil:
			return err
		default:
			s.add(name, f)
			faults = append(faults, x.compare(name, places[name], f)...)
		}
	}
	if err := listed("checkpoint", faults); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readIndex reads a file of limited size.
func readIndex(path vfs.Path) ([]byte, error) {
	f, err := path.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIndexSize+1))
	if err == nil && len(text) > maxIndexSize {
		err = fmt.Errorf("%s: %w index: larger than %d bytes", path, ErrFormat, maxIndexSize)
	}
	return text, err
}

// Names lists the names of the files in their directory, sorted.
func (s *Shards) Names() []string { return s.names }

// Tensors describes all tensors, file by file. Their byte ranges refer to their own
// files.
func (s *Shards) Tensors() []Info {
	var list []Info
	for _, name := range s.names {
		list = append(list, s.files[name].Tensors()...)
	}
	return list
}

// Tensor is [File.Tensor] for the file that holds the tensor.
func (s *Shards) Tensor(name string) (Tensor, error) {
	f, ok := s.of[name]
	if !ok {
		return Tensor{}, fmt.Errorf("there is no tensor %q", name)
	}
	return f.Tensor(name)
}

// Close closes all files.
func (s *Shards) Close() error {
	var errs []error
	for f := range maps.Values(s.files) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
