package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Verification is the result of [Verify] for one file.
type Verification struct {
	Path   string
	Header dataset.Header // header of a token file; zero for other files, and if it cannot be read
	Err    error          // nil: intact
}

// Verify reads the token file, or the files of the dataset, at path and checks them
// against their hashes, their vocabulary, and the manifest. It continues after a damaged
// file; the error is only that of ctx.
func Verify(ctx context.Context, path string) ([]Verification, error) {
	stat, err := os.Stat(path)
	if err != nil || !stat.IsDir() {
		v := verifyFile(ctx, path, nil)
		return []Verification{v}, ctx.Err()
	}
	manifest := Verification{Path: filepath.Join(path, ManifestFile)}
	var m Manifest
	text, err := os.ReadFile(manifest.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		manifest.Err = fmt.Errorf("%s is not a dataset, or an unfinished one: it has no %s", path, ManifestFile)
	case err != nil:
		manifest.Err = err
	default:
		if err := m.parse(text); err != nil {
			manifest.Err = fmt.Errorf("%s: %w", manifest.Path, err)
		}
	}
	if manifest.Err != nil {
		return []Verification{manifest}, nil
	}
	list := []Verification{manifest}
	for i, name := range m.Train.files(TrainFile) {
		list = append(list, verifyFile(ctx, filepath.Join(path, name), func(f *dataset.File) error { return m.matches(f, m.Train.shard(i)) }))
	}
	list = append(list, verifyFile(ctx, filepath.Join(path, ValFile), func(f *dataset.File) error { return m.matches(f, m.Val) }))
	if content, err := tokenizer.Definition(path, m.Tokenizer); content != nil || err != nil {
		list = append(list, Verification{Path: filepath.Join(path, tokenizer.DefinitionFile), Err: err})
	}
	return list, ctx.Err()
}

// verifyFile verifies one token file; also, if given, is another condition.
func verifyFile(ctx context.Context, path string, also func(*dataset.File) error) Verification {
	v := Verification{Path: path}
	f, err := dataset.Open(path)
	if err != nil {
		v.Err = err
		return v
	}
	defer f.Close()
	v.Header = f.Header()
	if v.Err = f.Verify(ctx); v.Err == nil && also != nil {
		v.Err = also(f)
	}
	return v
}
