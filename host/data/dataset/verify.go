package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// Verification is the result of [Verify] for one file.
type Verification struct {
	Path   string
	Header Header // header of a token file; zero for other files, and if it cannot be read
	Err    error  // nil: intact
}

// Verify reads the token file, or the files of the dataset, at path and checks them
// against their hashes, their vocabulary, and the manifest. It continues after a damaged
// file; the error is only that of ctx.
func Verify(ctx context.Context, path string) ([]Verification, error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return []Verification{verifyFile(ctx, path)}, ctx.Err()
	}
	kind := Conversations
	if _, err := os.Stat(filepath.Join(path, kind.Manifest)); errors.Is(err, os.ErrNotExist) {
		kind = Texts
	}
	manifest := Verification{Path: filepath.Join(path, kind.Manifest)}
	m, err := readManifest(manifest.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s is not a dataset, or an unfinished one: it has no %s", path, kind.Manifest)
	}
	manifest.Err = err
	list := []Verification{manifest}
	if err != nil {
		return list, nil
	}
	for _, want := range append(m.Train.files(kind.Train), m.Val.files(kind.Val)...) {
		v := verifyFile(ctx, filepath.Join(path, want.File))
		h := v.Header
		if v.Err == nil && (h.SHA256 != want.SHA256 || h.Tokens != want.Tokens || h.Documents != want.Documents || h.Origin != m.Origin) {
			v.Err = &FormatError{v.Path, fmt.Sprintf("is not the file that %s describes: prepare the dataset again", kind.Manifest)}
		}
		list = append(list, v)
	}
	if m.Conversations() {
		v := Verification{Path: filepath.Join(path, tokenizer.TemplateFile)}
		var text []byte
		text, v.Err = regular.ReadFile(v.Path)
		if sum := sha256.Sum256(text); v.Err == nil && hex.EncodeToString(sum[:]) != m.TemplateSHA256 {
			v.Err = fmt.Errorf("%s is not the template that %s describes: prepare the dataset again", v.Path, kind.Manifest)
		}
		list = append(list, v)
	}
	if content, err := tokenizer.Definition(path, m.Tokenizer); content != nil || err != nil {
		list = append(list, Verification{Path: filepath.Join(path, tokenizer.DefinitionFile), Err: err})
	}
	return list, ctx.Err()
}

// verifyFile verifies one token file.
func verifyFile(ctx context.Context, path string) Verification {
	v := Verification{Path: path}
	f, err := Open(path)
	if err != nil {
		v.Err = err
		return v
	}
	defer f.Close()
	v.Header = f.Header()
	v.Err = f.Verify(ctx)
	return v
}
