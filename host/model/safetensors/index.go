package safetensors

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// A checkpoint is either one file, or several with an index, a JSON file that says which
// file holds which tensor:
//
//	{"metadata": {"total_size": 268}, "weight_map": {"TENSOR": "FILE", …}}
const (
	// SingleName is the file name of a checkpoint that is one file.
	SingleName = "model.safetensors"
	// IndexName is the name of the index of a checkpoint in several files.
	IndexName = "model.safetensors.index.json"
)

// index is what an index says.
type index struct {
	Metadata  jsontext.Value    `json:"metadata"` // what it says is informative only
	WeightMap map[string]string `json:"weight_map"`
}

// parseIndex decodes an index and checks the names of its files.
func parseIndex(text []byte) (index, error) {
	// Each name is followed by a colon. They are counted before they take memory.
	if names := bytes.Count(text, []byte{':'}); names > maxIndexNames {
		return index{}, fmt.Errorf("%w index: about %d names, want at most %d", ErrFormat, names, maxIndexNames)
	}
	var x index
	if err := json.Unmarshal(text, &x); err != nil { // names that occur twice are an error
		return index{}, fmt.Errorf("%w index: %w", ErrFormat, plainjson.Explain(text, err))
	}
	if x.WeightMap == nil {
		return index{}, fmt.Errorf("%w index: it has no weight_map", ErrFormat)
	}
	files := x.files()
	if len(files) > maxIndexFiles {
		return index{}, fmt.Errorf("%w index: %d files, want at most %d", ErrFormat, len(files), maxIndexFiles)
	}
	var faults []string
	for _, name := range files {
		if !isPlain(name) {
			faults = append(faults, fmt.Sprintf("weight_map names the file %q, want a name in the same directory", name))
		}
	}
	return x, listed("index", faults)
}

// isPlain tells whether a name is that of a file in the directory itself.
func isPlain(name string) bool {
	return name != "" && name != "." && !strings.Contains(name, "..") && !strings.ContainsAny(name, "/\\:\x00")
}

// files lists the names of the files, sorted.
func (x index) files() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.WeightMap)))
}

// places lists the tensors of each file.
func (x index) places() map[string][]string {
	list := map[string][]string{}
	for tensor, file := range x.WeightMap {
		list[file] = append(list[file], tensor)
	}
	return list
}

// compare returns what is wrong with a file that the index names: tensors that it lacks of
// those that are placed there, and tensors that the index does not place in it.
func (x index) compare(name string, placed []string, f *File) (faults []string) {
	for _, tensor := range placed {
		if _, has := f.index[tensor]; !has {
			faults = append(faults, fmt.Sprintf("%s lacks the tensor %q, which weight_map places there", name, tensor))
		}
	}
	for _, info := range f.header.infos {
		switch file, some := x.WeightMap[info.Name]; {
		case !some:
			faults = append(faults, fmt.Sprintf("%s has the tensor %q, which weight_map does not name", name, info.Name))
		case file != name:
			faults = append(faults, fmt.Sprintf("%s has the tensor %q, which weight_map places in %s", name, info.Name, file))
		}
	}
	return faults
}

// mostFaults bounds what one error lists.
const mostFaults = 100

// listed is one error about all faults, sorted; nil for none.
func listed(what string, faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	if more := len(faults) - mostFaults; more > 0 {
		faults = append(faults[:mostFaults], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w %s:\n  %s", ErrFormat, what, strings.Join(faults, "\n  "))
}
