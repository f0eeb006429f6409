package data

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// DefaultValFraction replaces a zero ValFraction, and DefaultSplitSeed is the default seed of the
// command line. The runs in the CAGE paper use both: their validation set is a random 0.05 % of the
// training text (QuEST, Panferov et al. 2025, published code).
const (
	DefaultValFraction = 0.0005
	DefaultSplitSeed   = 2357
)

// DefaultField is the usual name of the text field in published datasets.
const DefaultField = "text"

// PrepareOptions selects the text that [Prepare] reads, and how it is processed.
type PrepareOptions struct {
	Selection
	// Out is the folder of the dataset; it is created if necessary.
	Out       string
	Tokenizer tokenizer.Tokenizer
	// ValFraction is the fraction of documents for validation, but at least one document. Zero
	// means DefaultValFraction.
	ValFraction float64
	// Seed determines the order of documents, and thus the split and the selection for MaxBytes.
	// Zero is a valid seed.
	Seed uint64
	// Files is the file system of Out; nil means the operating system's.
	Files vfs.FS
	// Progress, if not nil, is called repeatedly, by one goroutine at a time.
	Progress func(Progress)
}

// Selection selects documents. The manifest of a dataset repeats it.
type Selection struct {
	// Inputs are files and folders. Folders are searched recursively; hidden entries, links and
	// special files are skipped.
	Inputs []string `json:"inputs"`
	// Format is the format of all files. If it is empty, each file's name determines its format.
	// The compression is always determined by the name.
	Format source.Format `json:"format,omitempty"`
	// Field is the field or column with the text in rows of JSON and Parquet. Empty means
	// DefaultField.
	Field string `json:"field,omitempty"`
	// SkipBad skips and counts rows that hold no text; otherwise the first such row is an error.
	SkipBad bool `json:"skip_bad,omitempty"`
	// Include selects files within folders by shell patterns ("*.go"). A pattern with a
	// slash is matched against the path below the input, any other against the file's
	// name. Empty means all files. Files named in Inputs are always taken.
	Include []string `json:"include,omitempty"`
	// Separator ends a document within a text file, for example "<|endoftext|>". It is
	// not part of any document. If it is empty, every file is one document.
	Separator string `json:"separator,omitempty"`
	// ValInputs are separate files and folders for validation. If they are given, all documents of
	// Inputs are for training, and ValFraction must be zero. A file found in both is used only for
	// validation.
	ValInputs []string `json:"val_inputs,omitempty"`
	// MaxBytes limits the text taken from Inputs. Documents are taken in random order until the next
	// one would exceed the limit; documents longer than the limit are ignored. Zero means no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// Progress reports the progress of [Prepare].
type Progress struct {
	Stage     string // "scan", then "encode"
	Documents int64  // number finished in this stage
	// Bytes and TotalBytes count bytes of files in the first stage, and bytes of text in the second.
	Bytes, TotalBytes int64
}

func (o *PrepareOptions) resolve() error {
	switch {
	case len(o.Inputs) == 0:
		return errors.New("no input: name at least one text file or folder")
	case o.Out == "":
		return errors.New("no output folder")
	case o.Tokenizer == nil:
		return errors.New("no tokenizer")
	case math.IsNaN(o.ValFraction) || o.ValFraction < 0 || o.ValFraction >= 1:
		return fmt.Errorf("validation fraction %v, want at least 0 (which means %v) and below 1",
			o.ValFraction, DefaultValFraction)
	case len(o.ValInputs) > 0 && o.ValFraction != 0:
		return errors.New("validation fraction and validation inputs are mutually exclusive")
	case o.MaxBytes < 0:
		return fmt.Errorf("limit of %d bytes, want a positive number, or 0 for no limit", o.MaxBytes)
	case !utf8.ValidString(o.Separator) || strings.ContainsRune(o.Separator, 0):
		return fmt.Errorf("separator %q: want valid UTF-8 without zero bytes", o.Separator)
	}
	if _, err := source.ParseFormat(string(o.Format)); err != nil {
		return err
	}
	o.Field = cmp.Or(o.Field, DefaultField)
	if o.ValFraction == 0 && len(o.ValInputs) == 0 {
		o.ValFraction = DefaultValFraction
	}
	return nil
}

// Manifest describes the sources and the contents of a dataset of texts; it is stored as
// dataset.json.
type Manifest struct {
	dataset.Manifest
	// Read describes the input, by format and compression.
	Read []Read `json:"read,omitempty"`
	// LeftOut lists the files that were found but not used.
	LeftOut []LeftOut `json:"left_out"`
	Selection
}

// Read holds counts for the input files of one format and compression.
type Read struct {
	Format      source.Format      `json:"format"`
	Compression source.Compression `json:"compression,omitempty"`
	Files       int64              `json:"files"`
	Rows        int64              `json:"rows,omitempty"` // of formats with rows
	Documents   int64              `json:"documents"`      // including those beyond MaxBytes
	Bytes       int64              `json:"bytes"`          // bytes of text
	EmptyRows   int64              `json:"empty_rows,omitempty"`
	BadRows     int64              `json:"bad_rows,omitempty"`
	FirstBad    string             `json:"first_bad,omitempty"` // error of the first bad row
}

// report has an entry for each format and compression, ordered as [source.Formats].
type report []Read

func (r *report) add(f *sourceResult) {
	format, compress := f.source.format, f.source.compress
	order := func(a Read, b Read) int {
		index := func(f source.Format) int { return slices.Index(source.Formats, f) }
		return cmp.Or(index(a.Format)-index(b.Format), cmp.Compare(a.Compression, b.Compression))
	}
	i, found := slices.BinarySearchFunc(*r, Read{Format: format, Compression: compress}, order)
	if !found {
		*r = slices.Insert(*r, i, Read{Format: format, Compression: compress})
	}
	read := &(*r)[i]
	read.Files++
	read.Rows += f.rows
	read.Documents += int64(len(f.documents))
	read.Bytes += textBytes(f.documents)
	read.EmptyRows += f.empty
	read.BadRows += f.bad
	if read.FirstBad == "" && f.firstBad != nil {
		read.FirstBad = f.firstBad.Error()
	}
}
