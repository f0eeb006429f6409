package data

import (
	"encoding/json"
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
)

// The names of the files of a dataset. A Hugging Face tokenizer's tokenizer.json lies
// beside them.
const (
	TrainFile       = "train.tokens"
	ValFile         = "val.tokens"
	ManifestFile    = "dataset.json"
	manifestVersion = 2 // 1 is read, too: it lacks what version 2 adds
)

// Manifest says what a dataset was made from and what it contains; it is stored as
// dataset.json.
type Manifest struct {
	Version   int            `json:"version"`
	Tokenizer tokenizer.Info `json:"tokenizer"`
	Train     Part           `json:"train"`
	Val       Part           `json:"val"`
	// Read counts what was read, by format and compression.
	Read []Read `json:"read,omitempty"`
	// LeftOut lists the files that were found but not used.
	LeftOut []LeftOut `json:"left_out"`
	// Skipped is what earlier versions wrote instead of LeftOut.
	Skipped json.RawMessage `json:"skipped,omitempty"`

	// The options it was made with.
	Inputs      []string      `json:"inputs"`
	Format      source.Format `json:"format,omitempty"`
	Field       string        `json:"field,omitempty"`
	SkipBad     bool          `json:"skip_bad,omitempty"`
	Include     []string      `json:"include,omitempty"`
	Separator   string        `json:"separator,omitempty"`
	ValInputs   []string      `json:"val_inputs,omitempty"`
	ValFraction float64       `json:"val_fraction,omitempty"`
	Seed        uint64        `json:"seed"`
	MaxBytes    int64         `json:"max_bytes,omitempty"`
	ShardTokens int64         `json:"shard_tokens,omitempty"`

	// Seconds is how long the preparation took.
	Seconds float64 `json:"seconds"`
}

// Part describes the token files for training or for validation.
type Part struct {
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Bytes     int64  `json:"bytes"`  // bytes of text
	SHA256    string `json:"sha256"` // hash of the stored ids, see [dataset.Header]
	// Shards lists the files if there are several.
	Shards []Shard `json:"shards,omitempty"`
}

// Shard is one of several token files that belong together, in their order.
type Shard struct {
	File      string `json:"file"`
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	SHA256    string `json:"sha256"`
}

func (m *Manifest) parse(text []byte) error {
	if err := plainjson.UnmarshalStrict(text, m); err != nil {
		return err
	}
	if m.Version < 1 || m.Version > manifestVersion {
		return fmt.Errorf("version %d, this program reads versions 1 to %d", m.Version, manifestVersion)
	}
	return m.Train.checkShards()
}

// checkShards compares the totals of the part with its shards.
func (p *Part) checkShards() error {
	if len(p.Shards) == 0 {
		return nil
	}
	var hashes []string
	documents, tokens := p.Documents, p.Tokens
	for _, s := range p.Shards {
		documents, tokens, hashes = documents-s.Documents, tokens-s.Tokens, append(hashes, s.SHA256)
	}
	if documents != 0 || tokens != 0 || dataset.JoinHashes(hashes) != p.SHA256 {
		return fmt.Errorf("its %d shards are not what its totals are of", len(p.Shards))
	}
	return nil
}

// matches compares the header of a token file with its part of the manifest.
func (m *Manifest) matches(f *dataset.File, part Part) error {
	h := f.Header()
	if h.SHA256 != part.SHA256 || h.Tokens != part.Tokens || h.Documents != part.Documents || h.Tokenizer != m.Tokenizer {
		return &dataset.FormatError{Path: f.Path(), Problem: fmt.Sprintf("is not the file that %s describes: prepare the dataset again", ManifestFile)}
	}
	return nil
}

// files are the names of the part's files; one is the name when there is one.
func (p *Part) files(one string) []string {
	if len(p.Shards) == 0 {
		return []string{one}
	}
	var names []string
	for _, s := range p.Shards {
		names = append(names, s.File)
	}
	return names
}

// shard describes one of the part's files.
func (p *Part) shard(i int) Part {
	if len(p.Shards) == 0 {
		return *p
	}
	s := p.Shards[i]
	return Part{Documents: s.Documents, Tokens: s.Tokens, SHA256: s.SHA256}
}
