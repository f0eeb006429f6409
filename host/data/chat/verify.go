package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/chat/rows"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// Verification is the result of [Verify] for one file.
type Verification struct {
	Path   string
	Header rows.Header // header of a chat file; zero for other files, and if it cannot be read
	Err    error       // nil: intact
}

// Verify reads the files of the data set in dir and checks them against their hashes and
// the manifest. It continues after a damaged file; the error is only that of ctx.
func Verify(ctx context.Context, dir string) ([]Verification, error) {
	m, err := readManifest(filepath.Join(dir, ManifestFile))
	list := []Verification{{Path: filepath.Join(dir, ManifestFile), Err: err}}
	if err != nil {
		return list, nil
	}
	for _, part := range []struct {
		name string
		want Part
	}{{TrainFile, m.Train}, {ValFile, m.Val}} {
		v := VerifyFile(ctx, filepath.Join(dir, part.name))
		if h := v.Header; v.Err == nil && (h.SHA256 != part.want.SHA256 || h.Origin != m.Origin) {
			v.Err = &rows.FormatError{Path: v.Path, Problem: fmt.Sprintf("is not the file that %s describes: prepare the data set again", ManifestFile)}
		}
		list = append(list, v)
	}
	list = append(list, m.verifyTemplate(filepath.Join(dir, tokenizer.TemplateFile)))
	if content, err := tokenizer.Definition(dir, m.Tokenizer); content != nil || err != nil {
		list = append(list, Verification{Path: filepath.Join(dir, tokenizer.DefinitionFile), Err: err})
	}
	return list, ctx.Err()
}

// VerifyFile reads one chat file and checks it against its hash.
func VerifyFile(ctx context.Context, path string) Verification {
	v := Verification{Path: path}
	f, err := rows.Open(path)
	if err != nil {
		v.Err = err
		return v
	}
	defer f.Close()
	v.Header = f.Header()
	v.Err = f.Verify(ctx)
	return v
}

func (m *Manifest) verifyTemplate(path string) Verification {
	text, err := regular.ReadFile(path)
	if sum := sha256.Sum256(text); err == nil && hex.EncodeToString(sum[:]) != m.TemplateSHA256 {
		err = fmt.Errorf("%s is not the template that %s describes: prepare the data set again", path, ManifestFile)
	}
	return Verification{Path: path, Err: err}
}

func readManifest(path string) (*Manifest, error) {
	text, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := m.parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Holds reports whether a folder contains a data set of conversations.
func Holds(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ManifestFile))
	return err == nil
}
