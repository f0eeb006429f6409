package safetensors

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Shards holds the open files that together contain the tensors of one checkpoint.
type Shards struct {
	names  []string         // of the files, sorted
	files  []*File          // parallel to names
	fileOf map[string]*File // by tensor
}

// maxIndexSize bounds an index, in bytes: it is several times the size of the largest published
// one.
const maxIndexSize = 50_000_000

// OpenShards opens the checkpoint in a directory: its [SingleName], or else all files that its
// [IndexName] names. Every tensor must be in the file that the index states, and the files must
// have no other tensors. The error lists all problems. It wraps fs.ErrNotExist if the directory has
// neither file, and ErrFormat if the content of a file is invalid.
func OpenShards(dir vfs.Path) (*Shards, error) {
	s := &Shards{fileOf: map[string]*File{}}
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
	s.names, s.files = append(s.names, name), append(s.files, f)
	for _, info := range f.header.infos {
		s.fileOf[info.Name] = f
	}
}

func (s *Shards) openAll(dir vfs.Path) error {
	path := dir.Join(IndexName)
	text, err := path.ReadSmallFile(maxIndexSize)
	if err != nil {
		return err
	}
	x, err := parseIndex(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var faults []string
	assigned := map[string][]string{} // the tensors of each file
	for tensor, file := range x.WeightMap {
		assigned[file] = append(assigned[file], tensor)
	}
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
			faults = append(faults, x.compare(name, assigned[name], f)...)
		}
	}
	if err := joinFaults("checkpoint", faults); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Names lists the names of the files in their directory, sorted.
func (s *Shards) Names() []string { return s.names }

// Tensors describes all tensors, file by file. Their byte ranges refer to their own files.
func (s *Shards) Tensors() []Info {
	var list []Info
	for _, f := range s.files {
		list = append(list, f.header.infos...)
	}
	return list
}

// Tensor calls [File.Tensor] for the file that holds the tensor.
func (s *Shards) Tensor(name string) (Tensor, error) {
	f, ok := s.fileOf[name]
	if !ok {
		return Tensor{}, fmt.Errorf("there is no tensor %q", name)
	}
	return f.Tensor(name)
}

// Close closes all files.
func (s *Shards) Close() error {
	return errors.Join(lists.Map(s.files, (*File).Close)...)
}

// A checkpoint is either one file, or several with an index, a JSON file that maps tensors to
// files:
//
//	{"metadata": {"total_size": 268}, "weight_map": {"TENSOR": "FILE", …}}
const (
	SingleName = "model.safetensors" // file name of a checkpoint that is one file
	// IndexName is the name of the index of a checkpoint in several files.
	IndexName = "model.safetensors.index.json"
)

type index struct {
	Metadata  jsontext.Value    `json:"metadata"` // informative only
	WeightMap map[string]string `json:"weight_map"`
}

func parseIndex(text []byte) (index, error) {
	var x index
	if err := json.Unmarshal(text, &x); err != nil { // duplicate names are an error
		return index{}, fmt.Errorf("%w index: %w", ErrFormat, plainjson.Explain(text, err))
	}
	if x.WeightMap == nil {
		return index{}, fmt.Errorf("%w index: it has no weight_map", ErrFormat)
	}
	var faults []string
	for _, name := range x.files() {
		if name == "" || name == "." || strings.Contains(name, "..") ||
			strings.ContainsAny(name, "/\\:\x00") {
			faults = append(faults, fmt.Sprintf("weight_map names the file %q, want a name in the same "+
				"directory", name))
		}
	}
	return x, joinFaults("index", faults)
}

func (x index) files() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.WeightMap)))
}

// compare returns the faults of a file that the index names: missing tensors, and tensors that the
// index assigns to another file or not at all.
func (x index) compare(name string, assigned []string, f *File) (faults []string) {
	for _, tensor := range assigned {
		if _, has := f.index[tensor]; !has {
			faults = append(faults, fmt.Sprintf("%s lacks the tensor %q, which weight_map assigns to it",
				name, tensor))
		}
	}
	for _, info := range f.header.infos {
		switch file, ok := x.WeightMap[info.Name]; {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s has the tensor %q, which is not in weight_map", name,
				info.Name))
		case file != name:
			faults = append(faults, fmt.Sprintf("%s has the tensor %q, which weight_map assigns to %s", name,
				info.Name, file))
		}
	}
	return faults
}

const maxFaults = 100

func joinFaults(what string, faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w %s:\n  %s", ErrFormat, what, strings.Join(faults, "\n  "))
}
