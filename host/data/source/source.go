// Package source reads the texts in files: plain text, rows of JSON and Parquet, each
// of them also compressed.
//
// It knows formats and nothing of what becomes of the texts. Whatever is wrong with a
// file ends in an error that says where: in a damaged file ([DamagedError]), or in a row
// ([RowError]), after which reading can go on with the next one. What a hostile file can
// make the program allocate is bounded: by [MaxRow], by what a page of Parquet
// says of its size and its values, and by how many times as large as its file a text may be.
package source

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Format says what a file is made of, once it is decompressed.
type Format string

// The formats.
const (
	Text    Format = "text"    // plain text
	JSONL   Format = "jsonl"   // an object of JSON in each line
	Parquet Format = "parquet" // columns
)

// Formats are all formats.
var Formats = []Format{Text, JSONL, Parquet}

// ParseFormat returns the format of a name; "" is no format, and accepted.
func ParseFormat(name string) (Format, error) {
	for _, f := range append(Formats, "") {
		if name == string(f) {
			return f, nil
		}
	}
	return "", fmt.Errorf("format %q: want text, jsonl or parquet", name)
}

// Compression says how a file is compressed.
type Compression string

// The kinds of compression.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// ByName tells what the name of a file says about its format and compression. A name
// that says nothing is that of a text.
func ByName(name string) (Format, Compression) {
	name = strings.ToLower(filepath.Base(name))
	compression := None
	switch ext := filepath.Ext(name); ext {
	case ".gz", ".gzip":
		compression, name = Gzip, strings.TrimSuffix(name, ext)
	case ".zst", ".zstd":
		compression, name = Zstd, strings.TrimSuffix(name, ext)
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson", ".jsonlines":
		return JSONL, compression
	case ".parquet":
		return Parquet, compression
	}
	return Text, compression
}

// ByContent tells by the first bytes of a file how it is compressed.
func ByContent(begin []byte) Compression {
	switch {
	case strings.HasPrefix(string(begin), "\x1f\x8b"):
		return Gzip
	case strings.HasPrefix(string(begin), "\x28\xb5\x2f\xfd"):
		return Zstd
	}
	return None
}

// MaxRow bounds a row: a line of JSON, or a value of a column.
const MaxRow = 64 << 20

// Row is one row of a file, numbered from 1: of JSON, its line.
type Row struct {
	Number int64
	// Text is valid until the next row.
	Text []byte
	// Err, if not nil, says why there is no text.
	Err *RowError
}

// A RowError reports a row that holds no text. Rows after it can be read.
type RowError struct {
	Unit    string // "line" or "row"
	Number  int64
	Problem string
}

func (e *RowError) Error() string { return fmt.Sprintf("%s %d: %s", e.Unit, e.Number, e.Problem) }

// A DamagedError reports a file that cannot be read to its end.
type DamagedError struct {
	Format  string // of what was damaged, as "gzip"
	Problem string
}

func (e *DamagedError) Error() string { return e.Format + ": " + e.Problem }
