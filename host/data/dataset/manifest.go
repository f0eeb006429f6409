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

// Manifest describes the content of a dataset. The packages that prepare datasets embed it in
// manifests that also describe the sources.
type Manifest struct {
	Version int `json:"version"`
	Origin
	Train Part `json:"train"`
	Val   Part `json:"val"`
	// ValFraction is the fraction of the documents used for validation, if they were chosen at
	// random.
	ValFraction float64 `json:"val_fraction,omitempty"`
	Seed        uint64  `json:"seed"`
	// Seconds is the duration of the preparation.
	Seconds float64 `json:"seconds"`
}

// AnyManifest is a [Manifest], or a manifest that embeds one.
type AnyManifest interface{ contained() *Manifest }

func (m *Manifest) contained() *Manifest { return m }

// Part describes the token files for training or for validation.
type Part struct {
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	// Bytes is the size of the text; 0 for conversations.
	Bytes int64 `json:"bytes,omitempty"`
	// Learned and Longest are those of [Header].
	Learned int64 `json:"learned,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	// SHA256 is the hash of the stored tokens, as in [File.Header].
	SHA256 string `json:"sha256"`
	// Shards lists the files if there are several, as earlier versions of cage wrote them.
	Shards []Shard `json:"shards,omitempty"`
}

// Shard is one of several token files of a part, in their order.
type Shard struct {
	File      string `json:"file"`
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	SHA256    string `json:"sha256"`
}

// contains fills in the contents of the part's token file.
func (p *Part) contains(h Header) {
	p.Documents, p.Tokens, p.Learned, p.Longest = h.Documents, h.Tokens, h.Learned, h.Longest
	p.SHA256 = h.SHA256
}

func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := plainjson.Unmarshal(text, m); err != nil {
		return nil, err
	}
	if m.Version < 1 {
		return nil, fmt.Errorf("version %d: this is no manifest", m.Version)
	}
	return m, nil
}

// checkShards checks the shards against the totals of the part.
func (p *Part) checkShards() error {
	sum, documents, tokens := sha256.New(), p.Documents, p.Tokens
	for _, s := range p.Shards {
		documents, tokens = documents-s.Documents, tokens-s.Tokens
		fmt.Fprintln(sum, s.SHA256)
	}
	whole := hex.EncodeToString(sum.Sum(nil))
	if len(p.Shards) == 1 {
		whole = p.Shards[0].SHA256
	}
	if len(p.Shards) > 0 && (documents != 0 || tokens != 0 || whole != p.SHA256) {
		return fmt.Errorf("its %d shards are not what its totals are of", len(p.Shards))
	}
	return nil
}

// files lists the part's files; one is the name of a single file.
func (p *Part) files(one string) []Shard {
	if len(p.Shards) > 0 {
		return p.Shards
	}
	return []Shard{{one, p.Documents, p.Tokens, p.SHA256}}
}

// Verification is the result of [Verify] for one file.
type Verification struct {
	Path   string
	Header Header // header of a token file; zero for other files, and if it cannot be read
	Err    error  // nil: intact
}

// Verify reads the token file, or the files of the dataset, at path and checks them against their
// hashes, their vocabulary, and the manifest. It continues after a damaged file; the error is only
// that of ctx.
func Verify(ctx context.Context, path string) ([]Verification, error) {
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return []Verification{verifyFile(ctx, path)}, ctx.Err()
	}
	kind := Conversations
	if _, err := os.Stat(filepath.Join(path, kind.Manifest)); errors.Is(err, os.ErrNotExist) {
		kind = Texts
	}
	manifest := Verification{Path: filepath.Join(path, kind.Manifest)}
	m := &Manifest{}
	text, err := vfs.ReadRegular(manifest.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("%s is not a dataset, or an unfinished one: it has no %s", path, kind.Manifest)
	case err == nil:
		if m, err = parseManifest(text); err == nil && m.Version != manifestVersion {
			err = fmt.Errorf("version %d, this program reads version %d: prepare the dataset again",
				m.Version, manifestVersion)
		} else if err == nil {
			err = m.Train.checkShards()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", manifest.Path, err)
		}
	}
	manifest.Err = err
	list := []Verification{manifest}
	if err != nil {
		return list, nil
	}
	for _, want := range append(m.Train.files(kind.Train), m.Val.files(kind.Val)...) {
		v := verifyFile(ctx, filepath.Join(path, want.File))
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
		text, v.Err = vfs.ReadRegular(v.Path)
		if sum := sha256.Sum256(text); v.Err == nil && hex.EncodeToString(sum[:]) != m.TemplateSHA256 {
			v.Err = fmt.Errorf("%s is not the template that %s describes: prepare the dataset again",
				v.Path, kind.Manifest)
		}
		list = append(list, v)
	}
	if content, err := tokenizer.Definition(path, m.Tokenizer); content != nil || err != nil {
		list = append(list, Verification{Path: filepath.Join(path, tokenizer.DefinitionFile), Err: err})
	}
	return list, ctx.Err()
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
