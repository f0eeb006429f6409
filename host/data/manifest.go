package data

import (
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
)

// Manifest says what a dataset of texts was made from and what it contains; it is stored as
// dataset.json.
type Manifest struct {
	dataset.Manifest
	// Read counts what was read, by format and compression.
	Read []Read `json:"read,omitempty"`
	// LeftOut lists the files that were found but not used.
	LeftOut []LeftOut `json:"left_out"`

	// The options it was made with.
	Inputs      []string      `json:"inputs"`
	Format      source.Format `json:"format,omitempty"`
	Field       string        `json:"field,omitempty"`
	SkipBad     bool          `json:"skip_bad,omitempty"`
	Include     []string      `json:"include,omitempty"`
	Separator   string        `json:"separator,omitempty"`
	ValInputs   []string      `json:"val_inputs,omitempty"`
	MaxBytes    int64         `json:"max_bytes,omitempty"`
	ShardTokens int64         `json:"shard_tokens,omitempty"`
}
