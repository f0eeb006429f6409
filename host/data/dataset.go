package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/regular"
	"github.com/cage-qat/cage/internal/vfs"
)

// The names of the files of a dataset. A Hugging Face tokenizer's tokenizer.json lies
// beside them.
const (
	TrainFile       = "train.tokens"
	ValFile         = "val.tokens"
	ManifestFile    = "dataset.json"
	manifestVersion = 1
)

// Manifest says what a dataset was made of and what came out; it is stored as
// dataset.json.
type Manifest struct {
	Version   int            `json:"version"`
	Tokenizer tokenizer.Info `json:"tokenizer"`
	Train     Part           `json:"train"`
	Val       Part           `json:"val"`
	// LeftOut are the files that were found and not taken.
	LeftOut []LeftOut `json:"left_out"`
	// Skipped is what earlier versions wrote in place of LeftOut.
	Skipped json.RawMessage `json:"skipped,omitempty"`

	// The options it was made with.
	Inputs      []string `json:"inputs"`
	Include     []string `json:"include,omitempty"`
	Separator   string   `json:"separator,omitempty"`
	ValInputs   []string `json:"val_inputs,omitempty"`
	ValFraction float64  `json:"val_fraction,omitempty"`
	Seed        uint64   `json:"seed"`
	MaxBytes    int64    `json:"max_bytes,omitempty"`

	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// Part describes one token file.
type Part struct {
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Bytes     int64  `json:"bytes"`  // of text
	SHA256    string `json:"sha256"` // of the stored ids
}

func (m *Manifest) save(path vfs.Path) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, append(text, '\n'))
}

// Dataset is a folder that [Prepare] made.
type Dataset struct {
	Manifest   Manifest
	Train, Val *File
	Tokenizer  tokenizer.Tokenizer
}

// OpenDataset opens the dataset in dir and checks that its parts belong
// together. It does not read the tokens; see [Verify].
func OpenDataset(dir string) (*Dataset, error) {
	d := &Dataset{}
	text, err := regular.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a dataset, or an unfinished one: prepare it first: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	if err := d.Manifest.parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	if d.Train, err = openPart(dir, TrainFile, &d.Manifest, d.Manifest.Train); err != nil {
		return nil, err
	}
	if d.Val, err = openPart(dir, ValFile, &d.Manifest, d.Manifest.Val); err == nil {
		d.Tokenizer, err = tokenizer.Reopen(dir, d.Manifest.Tokenizer)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (m *Manifest) parse(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return err
	}
	if m.Version != manifestVersion {
		return fmt.Errorf("version %d, this program reads version %d", m.Version, manifestVersion)
	}
	return nil
}

// openPart opens one token file and compares it with the manifest.
func openPart(dir, name string, m *Manifest, part Part) (*File, error) {
	f, err := Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if err := m.matches(f, part); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// matches compares the header of a token file with its part of the manifest.
func (m *Manifest) matches(f *File, part Part) error {
	h := f.Header()
	if h.SHA256 != part.SHA256 || h.Tokens != part.Tokens || h.Documents != part.Documents || h.Tokenizer != m.Tokenizer {
		return &FormatError{f.Path(), fmt.Sprintf("is not the file that %s describes: prepare the dataset again", ManifestFile)}
	}
	return nil
}

// Close closes the token files.
func (d *Dataset) Close() error {
	var errs []error
	for _, f := range []*File{d.Train, d.Val} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
