// Package provenance says where a run and its weights come from: what it was made of, its identity, and of which files
// the weights were read that it started from or learns from. It reads those weights, of a run or of a Hugging Face
// checkpoint, and the parts of a checkpoint's metadata that are the same in every run.
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

// Record is what run.toml does not say about how a run came to be.
type Record struct {
	Run   string           `json:"run,omitempty"` // identity
	Build engine.BuildInfo `json:"build"`
	// Directory is the working directory, to which the configuration's paths are relative.
	Directory string `json:"directory,omitempty"`
	// Initial is where the weights before the first step were read from; nil if they were
	// drawn at random.
	Initial *Origin `json:"initial,omitempty"`
	// Teacher is where the weights of the teacher are read from; nil if there is none.
	Teacher *Origin `json:"teacher,omitempty"`
	// Tokenizer is the tokenizer that the token files were made with; nil without data.
	Tokenizer *tokenizer.Info `json:"tokenizer,omitempty"`
	// Data are the token files, listed once their content has been verified against these
	// hashes.
	Data    []File       `json:"data,omitempty"`
	Plugins []build.Used `json:"plugins"`
	// Programs are the hashes of the programs; see assembly.Programs.Hashes.
	Programs map[string]string `json:"programs"`
}

// File is a token file in the provenance of a run, or several that are one part of the data.
type File struct {
	Path   string   `json:"path"`            // path of the first file
	Files  []string `json:"files,omitempty"` // paths of all files, if there are several
	Tokens int64    `json:"tokens"`
	SHA256 string   `json:"sha256"` // of several files, the hash of their hashes
}

// Describe lists parts of the data that are known to be intact.
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

// Write puts it into a run directory, with the working directory added.
func (p *Record) Write(dir rundir.Dir) error {
	var err error
	if p.Directory, err = os.Getwd(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(dir.Provenance(), p)
}

// Read reads what a run directory says of how it came to be.
func Read(dir rundir.Dir) (*Record, error) {
	p := &Record{}
	return p, ReadTo(dir, p)
}

// ReadTo is [Read] into what holds more than a Record.
func ReadTo(dir rundir.Dir, to any) error {
	path := dir.Provenance()
	text, err := path.ReadFile()
	if err != nil {
		err = fmt.Errorf("what the run was made of cannot be read: %w", err)
		if errors.Is(err, fs.ErrNotExist) {
			err = &DescriptionError{err}
		}
		return err
	}
	if err := plainjson.Unmarshal(text, to); err != nil {
		return &DescriptionError{fmt.Errorf("what the run was made of cannot be read: %s: %w", path, err)}
	}
	return nil
}

// DescriptionError says that a file that describes the run in a directory is missing or
// damaged.
type DescriptionError struct{ Err error }

func (d *DescriptionError) Error() string { return d.Err.Error() }
func (d *DescriptionError) Unwrap() error { return d.Err }

// A run has an identity, a random text that is made with it and stands in its
// provenance.json and in its checkpoints: run directories and checkpoints are found by
// name, and another run may have got that name meanwhile.

// NewIdentity draws an identity.
func NewIdentity() string { return rand.Text() }

// CheckOwner fails if a checkpoint, given by its step and metadata, does not belong to
// the run in dir.
func CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	made, err := Read(dir)
	if err != nil {
		return err
	}
	return made.CheckOwner(dir, step, m)
}

// CheckOwner is [CheckOwner] for the run that was made so.
func (p *Record) CheckOwner(dir rundir.Dir, step int, m checkpoint.Meta) error {
	var id string
	if err := m.Get(identityKey, &id); err != nil {
		return err
	}
	if id != p.Run {
		return fmt.Errorf("%s: the checkpoint %s belongs to another run (%s; this one is %s): move it away",
			dir, checkpoint.FileName(step), id, p.Run)
	}
	return nil
}

// Progress is the part of a run's state that is not tensors. It is saved in
// checkpoints.
type Progress struct {
	Step    int     `json:"step"`    // steps done, skipped ones included
	Skipped int     `json:"skipped"` // steps that were not finite
	Tokens  int64   `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// Uncorrected counts the corrections that were left out, each of a single weight
	// tensor in one step.
	Uncorrected int `json:"uncorrected,omitempty"`
	// Counts are what the method has counted so far, by name.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// Entries of a checkpoint's metadata that those of all runs have.
const (
	identityKey = "run"
	ProgressKey = "progress"
	BuildKey    = "build"
)

// Metadata is that of a checkpoint of a run with this identity, which has come so far.
func Metadata(identity string, done Progress, build engine.BuildInfo) (checkpoint.Meta, error) {
	m := checkpoint.Meta{}
	return m, errors.Join(m.Set(identityKey, identity), m.Set(ProgressKey, done), m.Set(BuildKey, build))
}

// Tokens says what the ids of a model's tokens mean.
type Tokens struct {
	Tokenizer *tokenizer.Info // nil: not known
	Dir       string          // of the model, which may hold the tokenizer.json
	Vocab     int             // number of ids
}

// TokensOf returns those of the model in a directory, a run or a Hugging Face checkpoint, which is
// to have vocab ids.
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

// Check fails unless the ids in a file of tokens mean the same in the model: the tokenizer of the
// file must be that of the model, or that with tokens added which the model has ids for. If the
// model's is not known, a warning is logged. spec names the tokenizer.json of the file; empty: the
// one beside it.
func (t Tokens) Check(file *dataset.File, spec string, log hclog.Logger) error {
	if t.Tokenizer == nil {
		log.Warn("it is not known whether this file was made with the tokenizer of the model",
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
		if err != nil {
			theirs, own := tokenizer.Distinct(data, *t.Tokenizer)
			return fmt.Errorf("%s was made with the tokenizer %s, that of the model is %s%s: "+
				"prepare the text with its tokenizer (cage data prepare --tokenizer)",
				file.Path(), theirs, own, difference)
		}
	}
	if data.VocabSize > t.Vocab {
		return fmt.Errorf("%s was made with a tokenizer of %d token ids, the model in %s has %d",
			file.Path(), data.VocabSize, t.Dir, t.Vocab)
	}
	return nil
}
