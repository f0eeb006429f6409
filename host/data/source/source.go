// Package source reads the texts in files: plain text, JSON rows and Parquet, each of
// them possibly compressed.
//
// It knows formats, and nothing about what becomes of the texts. A problem in a file
// gives an error that says where it is: in a damaged file ([DamagedError]), or in a row
// ([RowError]), after which reading can continue with the next row. The memory that a
// hostile file can make the program allocate is limited: by [MaxRow], by what a Parquet
// page declares as its size and values, and by how many times the size of its file a text
// may have.
package source

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Format is the format of a file, once it is decompressed.
type Format string

// The formats.
const (
	Text    Format = "text"    // plain text
	JSONL   Format = "jsonl"   // a JSON object in each line
	Parquet Format = "parquet" // columns
)

// Formats lists all formats.
var Formats = []Format{Text, JSONL, Parquet}

// ParseFormat returns the format with that name; "" means no format, and is accepted.
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

// ByName determines the format and compression of a file from its name. If the name says
// nothing, the file is plain text.
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

// ByContent determines how a file is compressed from its first bytes.
func ByContent(begin []byte) Compression {
	switch {
	case strings.HasPrefix(string(begin), "\x1f\x8b"):
		return Gzip
	case strings.HasPrefix(string(begin), "\x28\xb5\x2f\xfd"):
		return Zstd
	}
	return None
}

// MaxRow is the maximal size of a row, in bytes: a line of JSON, or a value of a column.
const MaxRow = 64 << 20

// Row is one row of a file. Rows are numbered from 1; in JSON that is the line.
type Row struct {
	Number int64
	// Text is valid until the next row is read.
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
	Format  string // format of what was damaged, such as "gzip"
	Problem string
}

func (e *DamagedError) Error() string { return e.Format + ": " + e.Problem }
