package data

import (
	"cmp"
	"slices"

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

// Read counts what was read in one format and compression.
type Read struct {
	Format      source.Format      `json:"format"`
	Compression source.Compression `json:"compression,omitempty"`
	Files       int64              `json:"files"`
	Rows        int64              `json:"rows,omitempty"` // number of rows, for formats that have rows
	Documents   int64              `json:"documents"`      // including those left out by a limit on the text
	Bytes       int64              `json:"bytes"`          // bytes of text
	EmptyRows   int64              `json:"empty_rows,omitempty"`
	BadRows     int64              `json:"bad_rows,omitempty"`
	FirstBad    string             `json:"first_bad,omitempty"` // what was wrong with the first bad row
}

// report gathers what is read.
type report struct{ reads []*Read }

func (r *report) add(f *sourceResult) {
	i := slices.IndexFunc(r.reads, func(one *Read) bool { return one.Format == f.format && one.Compression == f.compress })
	if i < 0 {
		i = len(r.reads)
		r.reads = append(r.reads, &Read{Format: f.format, Compression: f.compress})
	}
	one := r.reads[i]
	one.Files++
	one.Rows += f.rows
	one.Documents += int64(len(f.documents))
	one.Bytes += textBytes(f.documents)
	one.EmptyRows += f.empty
	one.BadRows += f.bad
	if one.FirstBad == "" && f.firstBad != nil {
		one.FirstBad = f.firstBad.Error()
	}
}

// list has the formats in the order of [source.Formats].
func (r *report) list() []Read {
	list := make([]Read, 0, len(r.reads))
	for _, one := range r.reads {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b Read) int {
		order := func(f source.Format) int { return slices.Index(source.Formats, f) }
		return cmp.Or(order(a.Format)-order(b.Format), cmp.Compare(a.Compression, b.Compression))
	})
	return list
}
