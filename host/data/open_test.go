package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// opened is a folder that Prepare made, as tests look at it.
type opened struct {
	Manifest   Manifest
	Train, Val *dataset.File
	Tokenizer  tokenizer.Tokenizer
}

// openDataset opens the dataset in dir and checks that its parts belong
// together. It does not read the tokens; see Verify.
func openDataset(dir string) (*opened, error) {
	d := &opened{}
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
	if d.Train, err = openMatching(dir, &d.Manifest, d.Manifest.Train, d.Manifest.Train.files(TrainFile)...); err != nil {
		return nil, err
	}
	if d.Val, err = openMatching(dir, &d.Manifest, d.Manifest.Val, ValFile); err == nil {
		d.Tokenizer, err = tokenizer.Reopen(dir, d.Manifest.Tokenizer)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// openMatching opens the token files of a part and compares them with the manifest.
func openMatching(dir string, m *Manifest, part Part, names ...string) (*dataset.File, error) {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	f, err := dataset.Open(paths...)
	if err != nil {
		return nil, err
	}
	if err := m.matches(f, part); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the token files.
func (d *opened) Close() error {
	var errs []error
	for _, f := range []*dataset.File{d.Train, d.Val} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
