package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
)

const manifestVersion = 3

// Manifest describes the content of a dataset. Packages that prepare datasets embed it in a
// manifest that also describes the sources.
type Manifest struct {
	Version int `json:"version"`
	Origin
	Train Part `json:"train"`
	Val   Part `json:"val"`
	// ValFraction is the fraction of the documents used for validation, if they were chosen at random.
	ValFraction float64 `json:"val_fraction,omitempty"`
	Seed        uint64  `json:"seed"`
	// Seconds is how long the preparation took.
	Seconds float64 `json:"seconds"`
}

// Part describes the token files for training or for validation.
type Part struct {
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	// Bytes is the size of the text, or 0 for conversations.
	Bytes int64 `json:"bytes,omitempty"`
	// Learned and Longest are as in [Header].
	Learned int64 `json:"learned,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	// SHA256 is the hash of the stored tokens, as in [File.Header].
	SHA256 string `json:"sha256"`
}

func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := plainjson.Unmarshal(text, m); err != nil {
		return nil, err
	}
	if m.Version < 1 {
		return nil, fmt.Errorf("version %d: this is not a manifest", m.Version)
	}
	return m, nil
}

// Verification is the result of [Verify] for one file.
type Verification struct {
	Path   string
	Header Header // header of a token file; zero for other files, and if it cannot be read
	Err    error  // nil: intact
}

// Verify reads the token file, or the files of the datasets, at path and checks them against their
// hashes, their vocabulary, and the manifests. It continues after a damaged file. The returned
// error is that of ctx.
func Verify(ctx context.Context, path string) (list []Verification, _ error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return []Verification{verifyFile(ctx, path)}, ctx.Err()
	}
	for _, kind := range []Kind{Conversations, Texts} {
		_, err := os.Stat(filepath.Join(path, kind.Manifest))
		// The error for a directory without any manifest is about that of texts.
		if !errors.Is(err, os.ErrNotExist) || kind == Texts && len(list) == 0 {
			list = append(list, verifyKind(ctx, path, kind)...)
		}
	}
	return list, ctx.Err()
}

func verifyKind(ctx context.Context, path string, kind Kind) []Verification {
	manifest := Verification{Path: filepath.Join(path, kind.Manifest)}
	m := &Manifest{}
	text, err := vfs.At(manifest.Path).ReadFile()
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("%s is not a dataset, or an unfinished one: it has no %s", path, kind.Manifest)
	case err == nil:
		if m, err = parseManifest(text); err == nil && m.Version != manifestVersion {
			err = fmt.Errorf("version %d, this program reads version %d: prepare the dataset again",
				m.Version, manifestVersion)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", manifest.Path, err)
		}
	}
	manifest.Err = err
	list := []Verification{manifest}
	if err != nil {
		return list
	}
	for i, want := range []Part{m.Train, m.Val} {
		v := verifyFile(ctx, filepath.Join(path, []string{kind.Train, kind.Val}[i]))
		h := v.Header
		same := h.SHA256 == want.SHA256 && h.Tokens == want.Tokens &&
			h.Documents == want.Documents && h.Origin == m.Origin
		if v.Err == nil && !same {
			v.Err = &FormatError{v.Path, "is not the file that " + kind.Manifest +
				" describes: prepare the dataset again"}
		}
		list = append(list, v)
	}
	if m.Conversations() {
		v := Verification{Path: filepath.Join(path, tokenizer.TemplateFile)}
		var text []byte
		text, v.Err = vfs.At(v.Path).ReadFile()
		if sum := sha256.Sum256(text); v.Err == nil && hex.EncodeToString(sum[:]) != m.TemplateSHA256 {
			v.Err = fmt.Errorf("%s is not the template that %s describes: prepare the dataset again",
				v.Path, kind.Manifest)
		}
		list = append(list, v)
	}
	if content, err := tokenizer.Definition(path, m.Tokenizer); content != nil || err != nil {
		list = append(list, Verification{Path: filepath.Join(path, tokenizer.DefinitionFile), Err: err})
	}
	return list
}

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
