// Package provenance records the origin of a run and its weights: the run's build, data, plugins
// and identity, and the files from which its initial weights and its teacher's were read. It loads
// such weights, and defines the checkpoint metadata that all runs have in common.
package provenance

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
)

// Record holds the inputs of a run that run.toml does not contain.
type Record struct {
	Run   string           `json:"run,omitempty"` // identity
	Build engine.BuildInfo `json:"build"`
	// Directory is the working directory, to which the configuration's paths are relative.
	Directory string `json:"directory,omitempty"`
	// Initial is the origin of the initial weights; nil if they were randomly initialized.
	Initial *Origin `json:"initial,omitempty"`
	// Teacher is the origin of the teacher's weights; nil if there is none.
	Teacher *Origin `json:"teacher,omitempty"`
	// Tokenizer is the tokenizer with which the token files were made; nil if there are none.
	Tokenizer *tokenizer.Info `json:"tokenizer,omitempty"`
	// Data describes the token files, and is set once their content has been verified against these
	// hashes.
	Data []File `json:"data,omitempty"`
	// SourceFiles has the number of token files of each source of a mixture. The hash of the training
	// data does not tell which source a file belongs to.
	SourceFiles []int        `json:"source_files,omitempty"`
	Plugins     []build.Used `json:"plugins"`
	// Programs maps names to the hashes of programs; see build.Programs.Hashes.
	Programs map[string]string `json:"programs"`
	// Declared is the hash of what plugins declare beside programs; see build.Programs.Declared.
	Declared string `json:"declared,omitempty"`
}

// File describes one part of a run's data, which may consist of several token files.
type File struct {
	Path   string   `json:"path"`            // path of the first file
	Files  []string `json:"files,omitempty"` // paths of all files, if there are several
	Tokens int64    `json:"tokens"`
	SHA256 string   `json:"sha256"` // of several files: the hash of their hashes
}

// Describe returns the descriptions of parts of the data that have been verified.
func Describe(parts ...*dataset.File) (list []File) {
	for _, f := range parts {
		described := File{Path: f.Path(), Tokens: f.Len(), SHA256: f.SHA256()}
		if paths := f.Paths(); len(paths) > 1 {
			described.Files = paths
		}
		list = append(list, described)
	}
	return list
}

// Write sets Directory to the working directory, and writes the record to a run directory.
func (p *Record) Write(dir rundir.Dir) error {
	var err error
	if p.Directory, err = os.Getwd(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(dir.Provenance(), p)
}

// Read reads the provenance of the run in a directory.
func Read(dir rundir.Dir) (*Record, error) {
	p := &Record{}
	return p, ReadTo(dir, p)
}

// ReadTo is like [Read], but decodes into dst, which may have more fields than a Record.
func ReadTo(dir rundir.Dir, dst any) error {
	path := dir.Provenance()
	text, err := path.ReadFile()
	if err != nil {
		err = fmt.Errorf("the provenance of the run cannot be read: %w", err)
		if errors.Is(err, fs.ErrNotExist) {
			err = &DescriptionError{err}
		}
		return err
	}
	if err := plainjson.Unmarshal(text, dst); err != nil {
		err = fmt.Errorf("the provenance of the run cannot be read: %s: %w", path, err)
		return &DescriptionError{err}
	}
	return nil
}

// DescriptionError reports that a file describing a run is missing or damaged.
type DescriptionError struct{ Err error }

func (d *DescriptionError) Error() string { return d.Err.Error() }
func (d *DescriptionError) Unwrap() error { return d.Err }

// The identity of a run is a random string that is created with the run and stored in its
// provenance.json and checkpoints. It is needed because run directories and checkpoints are found
// by name, and another run may have taken the name since.

// NewIdentity returns a new random identity.
func NewIdentity() string { return rand.Text() }

// CheckOwner fails unless the checkpoint with this step and metadata belongs to the run that p
// describes. dir is the run directory, for messages.
func (p *Record) CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	var id string
	if err := m.Get(identityKey, &id); err != nil {
		return err
	}
	if id != p.Run {
		return fmt.Errorf("%s: the checkpoint %s belongs to another run (%s; this one is %s): "+
			"move it away", dir, checkpoint.FileName(step), id, p.Run)
	}
	return nil
}

// Progress is the part of a run's state that is not stored as tensors. It is saved in checkpoints.
type Progress struct {
	Step    int     `json:"step"`    // completed steps, including skipped ones
	Skipped int     `json:"skipped"` // steps skipped because they were not finite
	Tokens  int64   `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// ProcessorSeconds is the time that processors worked in these seconds.
	ProcessorSeconds float64 `json:"processor_seconds,omitempty"`
	// Strength is Σ α·λ of the decoupled correction in the steps that were not skipped.
	Strength float64 `json:"strength,omitempty"`
	// Uncorrected counts omitted corrections: one for each weight tensor and step.
	Uncorrected int `json:"uncorrected,omitempty"`
	// Counts holds the counters of the method, by name.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// Keys of the metadata that all checkpoints have.
const (
	identityKey = "run"
	ProgressKey = "progress"
	BuildKey    = "build"
)

// Metadata returns the checkpoint metadata of a run with this identity and progress.
func Metadata(identity string, done Progress, build engine.BuildInfo) (checkpoint.Meta, error) {
	m := checkpoint.Meta{}
	return m, errors.Join(
		m.Set(identityKey, identity), m.Set(ProgressKey, done), m.Set(BuildKey, build))
}

// Tokens describes the vocabulary of a model: the tokenizer that gives its token ids their meaning.
type Tokens struct {
	Tokenizer *tokenizer.Info // nil: unknown
	Dir       string          // directory of the model, which may hold tokenizer.json
	Vocab     int             // number of token ids
}

// TokensOf returns the vocabulary of the model in dir, which is a run directory if run is set, and
// otherwise a Hugging Face checkpoint.
func TokensOf(dir string, run bool, vocab int) (Tokens, error) {
	t := Tokens{Dir: dir, Vocab: vocab}
	if run {
		made, err := Read(rundir.At(dir))
		if err != nil {
			return t, err
		}
		t.Tokenizer = made.Tokenizer
		return t, nil
	}
	info, err := tokenizer.Identify(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	t.Tokenizer = &info
	return t, err
}

// Check fails unless the ids in a token file have the same meaning in the model: the file's
// tokenizer must be the model's, or extend it with added tokens for which the model has ids. If the
// model's tokenizer is unknown, Check logs a warning. spec locates the tokenizer.json of the file;
// if empty, that is in the directory of the file.
func (t Tokens) Check(file *dataset.File, spec string, log hclog.Logger) error {
	if t.Tokenizer == nil {
		log.Warn("the tokenizer of the model is unknown: this file may have been made with another",
			"file", file.Path())
		return nil
	}
	data := file.Tokenizer()
	if data.SHA256 != t.Tokenizer.SHA256 {
		more, err := tokenizer.Definition(cmp.Or(spec, filepath.Dir(file.Path())), data)
		var base []byte
		if err == nil {
			base, err = tokenizer.Definition(t.Dir, *t.Tokenizer)
		}
		difference := ""
		if err == nil {
			if err = tokenizer.Extends(more, base); err != nil {
				difference = fmt.Sprintf(" (%v)", err)
			}
		}
		if err == nil && data.VocabSize > t.Vocab {
			return fmt.Errorf("%s was made with a tokenizer of %d token ids, but the model in %s has %d",
				file.Path(), data.VocabSize, t.Dir, t.Vocab)
		}
		if err != nil {
			theirs, own := tokenizer.Distinct(data, *t.Tokenizer)
			return fmt.Errorf("%s was made with the tokenizer %s, but the model's is %s%s: "+
				"prepare the text with the model's tokenizer (cage data prepare --tokenizer)",
				file.Path(), theirs, own, difference)
		}
	}
	return nil
}
