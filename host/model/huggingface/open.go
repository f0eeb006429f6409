package huggingface

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// ConfigName is the name of the file that describes the model.
const ConfigName = "config.json"

// maxTextSize bounds the text files of a checkpoint, in bytes.
const maxTextSize = 16 << 20

// Checkpoint is an open checkpoint that has all tensors its model needs.
type Checkpoint struct {
	Config *Config
	Report Report
	// Stored tells of each type in few bits how many matrices have it, and which quantizer of weights
	// has the same grid, if one has.
	Stored []string

	path       vfs.Path // in messages
	files      []vfs.Path
	tensors    Tensors
	mappings   map[string][]Mapping // by parameter
	headIsCopy bool                 // the file also has a copy of the tied head
	faults     []string             // faults in values
}

// Tensors are the tensors of a checkpoint.
type Tensors interface {
	Tensors() []safetensors.Info
	Tensor(name string) (safetensors.Tensor, error)
	Close() error
}

// Options configure the use of a checkpoint.
type Options struct {
	Context int // sequence length in tokens; 0: the model's maximum
	// order of the rotary features; empty means the usual one of the family
	Pairs architecture.Pairing
}

// IsCheckpoint reports whether a directory looks like a checkpoint.
func IsCheckpoint(dir vfs.Path) bool {
	exists, err := dir.Join(ConfigName).Exists()
	return err == nil && exists
}

// repository matches the name of a repository of the Hugging Face Hub.
var repository = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// IsRepository reports whether a name has the form of a repository of the Hugging Face Hub.
func IsRepository(name string) bool { return repository.MatchString(name) }

// Hint returns the end of an error message about a path that is not a checkpoint: a remedy if it is
// a file or looks like the name of a repository, otherwise "".
func Hint(path string) string {
	info, err := os.Stat(path)
	_, noParent := os.Stat(filepath.Dir(path))
	ext := filepath.Ext(path)
	if files, _ := filepath.Glob(filepath.Join(path, "*.gguf")); err == nil && len(files) == 1 {
		return Hint(files[0]) // the directory of a GGUF file
	}
	switch {
	case ext == ".gguf" && (err != nil || !info.IsDir()):
		return fmt.Sprintf("; a GGUF file is not read directly: "+
			"`cage import %s --out RUN` converts it to a run", path)
	case err == nil && !info.IsDir() && (ext == ".safetensors" || ext == ".json"):
		return "; want the directory that holds config.json and *.safetensors"
	case err != nil && noParent != nil && repository.MatchString(path):
		return fmt.Sprintf("; if it is a repository of the Hugging Face Hub, "+
			"`hf download %s --local-dir %s` downloads it", path, filepath.Base(path))
	}
	return ""
}

// ReadConfig reads a checkpoint's description of its model, for sequences of context tokens. The
// error is an [*Error] if the content is invalid.
func ReadConfig(dir vfs.Path, context int) (*Config, error) {
	d, err := ReadDescription(dir)
	if err == nil && d.Config == nil {
		err = &fs.PathError{Op: "open", Path: dir.Join(ConfigName).Name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, Hint(dir.Name))
	}
	c, err := d.parse(context)
	if fault, ok := errors.AsType[*Error](err); ok {
		fault.Path = dir.Join(fault.Path).Name
	}
	return c, err
}

// Open opens the checkpoint in a directory. All problems with its configuration and with the names,
// shapes and types of its tensors are reported in one [*Error]. The values are not read.
func Open(dir vfs.Path, o Options) (*Checkpoint, error) {
	config, err := ReadConfig(dir, o.Context)
	fault, wrong := errors.AsType[*Error](err)
	if err != nil && !wrong {
		return nil, err
	}
	var faults []string
	if wrong {
		for _, f := range fault.Faults {
			faults = append(faults, filepath.Base(fault.Path)+": "+f)
		}
	}
	c := &Checkpoint{Config: config, path: dir, files: []vfs.Path{dir.Join(ConfigName)}}
	if shards, err := safetensors.OpenShards(dir); err == nil {
		var images int
		if c.tensors, images = ofText(shards); images > 0 && config != nil {
			config.Warnings = append(config.Warnings, fmt.Sprintf("only the text model is read: %d tensors "+
				"for images are left out", images))
		}
		for _, name := range shards.Names() {
			c.files = append(c.files, dir.Join(name))
		}
		if config != nil {
			c.tensors, faults = config.Packing.unpack(c.tensors)
		}
	} else {
		if !errors.Is(err, safetensors.ErrFormat) && !errors.Is(err, safetensors.ErrChecksum) &&
			!errors.Is(err, fs.ErrNotExist) {
			return nil, err // a read error
		}
		fault := err.Error()
		entries, _ := dir.ReadDir()
		for _, e := range entries {
			if slices.Contains([]string{".bin", ".pth", ".pt", ".gguf"}, filepath.Ext(e.Name())) {
				fault = fmt.Sprintf("%v; convert %s to safetensors", err, e.Name())
				break
			}
		}
		faults = append(faults, fault)
	}
	return c.opened(faults, o)
}

// Convert makes a checkpoint of a model in a file of another format, which has the given
// description and tensors. The error is as that of [Open]. If it fails, it closes the tensors.
func Convert(file vfs.Path, d Description, t Tensors, o Options) (*Checkpoint, error) {
	c := &Checkpoint{path: file, files: []vfs.Path{file}, tensors: t}
	config, err := d.parse(o.Context)
	if err != nil {
		if fault, ok := errors.AsType[*Error](err); ok {
			fault.Path = file.Name
		}
		return nil, errors.Join(err, c.Close())
	}
	c.Config = config
	return c.opened(nil, o)
}

// opened matches the tensors with the model, unless there are faults already. If it fails, it
// closes the checkpoint.
func (c *Checkpoint) opened(faults []string, o Options) (_ *Checkpoint, err error) {
	if len(faults) == 0 {
		if o.Pairs != "" {
			c.Config.Settings.RopePairs = o.Pairs
		}
		faults, err = c.matchTensors()
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		err = &Error{Path: c.path.Name, Faults: faults}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if packed, ok := c.tensors.(*unpackedTensors); ok {
		c.NoteStored(func(tensor string) string {
			if m := packed.matrices[tensor]; m != nil {
				return m.typ
			}
			return ""
		}, func(tensor string) string { return packed.matrices[tensor].keeps() })
	}
	return c, nil
}

// mostMissing bounds the number of parameters without elements in the files. With fewer, all
// missing tensors are named; more could need any amount of memory.
const mostMissing = 1 << 28

// matchTensors compares the tensors of the files with the tensors that the model needs.
func (c *Checkpoint) matchTensors() (faults []string, err error) {
	infos, elements := c.tensors.Tensors(), mostMissing
	for _, info := range infos {
		n := 1
		for _, d := range info.Shape {
			n *= d
		}
		elements += n
	}
	if n := architecture.CountParams(c.Params(), nil); n > elements {
		return []string{fmt.Sprintf("the model has %d parameters, and all tensors together have %d "+
			"elements", n, elements-mostMissing)}, nil
	}
	i := slices.IndexFunc(families,
		func(f family) bool { return f.architecture == c.Config.Architecture })
	list, err := families[i].layout(c.Config.Settings)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(infos, func(info safetensors.Info) bool { return info.Name == name })
	}
	tied := c.Config.Settings.Head == "tied"
	if embedding := &list[0]; tied && has(headTensor) {
		c.headIsCopy = has(embedding.Tensor)
		if !c.headIsCopy {
			embedding.Tensor = headTensor
		}
	}
	c.Report = compare(list, infos, tied)
	c.mappings = map[string][]Mapping{}
	for _, p := range list {
		c.mappings[p.Param.Name] = append(c.mappings[p.Param.Name], p)
	}
	return c.Report.faults(), nil
}

// Params lists the parameters of the model in order.
func (c *Checkpoint) Params() []architecture.Param { return c.Config.Settings.Params() }

func (c *Checkpoint) note(fault string) {
	if !slices.Contains(c.faults, fault) {
		c.faults = append(c.faults, fault)
	}
}

// Err returns an [*Error] about all unusable values read so far, or nil.
func (c *Checkpoint) Err() error {
	if len(c.faults) == 0 {
		return nil
	}
	slices.Sort(c.faults)
	return &Error{Path: c.path.Name, Faults: c.faults}
}

// Verify reads all values. It returns the error of [Checkpoint.Err], or a read error.
func (c *Checkpoint) Verify() error {
	for _, p := range c.Params() {
		if _, err := c.Values(p.Name); err != nil {
			return err
		}
	}
	return c.Err()
}

// A Part is a file of a checkpoint.
type Part struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// Parts reads the files that contain the configuration and the weights, and returns their digests.
func (c *Checkpoint) Parts() ([]Part, error) {
	var list []Part
	for _, path := range c.files {
		f, err := path.Open()
		if err != nil {
			return nil, err
		}
		sum, err := digest.Of(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		list = append(list, Part{path.Base(), sum})
	}
	return list, nil
}

// Close closes the files.
func (c *Checkpoint) Close() error {
	if c.tensors == nil {
		return nil
	}
	return c.tensors.Close()
}
