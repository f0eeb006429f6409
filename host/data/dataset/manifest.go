package dataset

import (
	"fmt"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/regular"
)

const manifestVersion = 3

// Manifest says what a dataset contains. The packages that prepare datasets embed it in
// manifests that also say what the dataset was made from.
type Manifest struct {
	Version int `json:"version"`
	Origin
	Train Part `json:"train"`
	Val   Part `json:"val"`
	// ValFraction is the share of the documents that went to validation, if it was drawn.
	ValFraction float64 `json:"val_fraction,omitempty"`
	Seed        uint64  `json:"seed"`
	// Seconds is how long the preparation took.
	Seconds float64 `json:"seconds"`
}

// AnyManifest is a [Manifest], or a manifest that embeds one.
type AnyManifest interface{ contained() *Manifest }

func (m *Manifest) contained() *Manifest { return m }

// Part describes the token files for training or for validation.
type Part struct {
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	// Bytes is the number of bytes of text; 0 for conversations.
	Bytes int64 `json:"bytes,omitempty"`
	// Learned and Longest are those of [Header].
	Learned int64 `json:"learned,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	// SHA256 is the hash of the stored tokens, as [File.Header] has it.
	SHA256 string `json:"sha256"`
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

// parseManifest reads what all manifests have in common.
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

// readManifest reads a manifest of this version.
func readManifest(path string) (*Manifest, error) {
	text, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	if m.Version != manifestVersion {
		return fmt.Errorf("version %d, this program reads version %d: prepare the dataset again", m.Version, manifestVersion)
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
	if documents != 0 || tokens != 0 || joinHashes(hashes) != p.SHA256 {
		return fmt.Errorf("its %d shards are not what its totals are of", len(p.Shards))
	}
	return nil
}

// files lists the part's files; one is the name where there is one.
func (p *Part) files(one string) []Shard {
	if len(p.Shards) > 0 {
		return p.Shards
	}
	return []Shard{{one, p.Documents, p.Tokens, p.SHA256}}
}
