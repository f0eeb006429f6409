// Package source reads the texts in files: plain text, JSON rows and Parquet, each possibly
// compressed.
//
// The error for a damaged file is a [DamagedError], and that for a bad row a [RowError], after
// which reading can continue with the next row. The memory that a file can require is limited by
// [MaxRow] and by maximal sizes of zstd windows and Parquet pages.
package source

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Format is the format of a decompressed file.
type Format string

// Supported formats.
const (
	Text    Format = "text"    // plain text
	JSONL   Format = "jsonl"   // a JSON object in each line
	Parquet Format = "parquet" // columns
)

// Formats lists all formats.
var Formats = []Format{Text, JSONL, Parquet}

// ParseFormat returns the format with the given name. The name may be "", for no format.
func ParseFormat(name string) (Format, error) {
	if name != "" && !slices.Contains(Formats, Format(name)) {
		return "", fmt.Errorf("format %q: want text, jsonl or parquet", name)
	}
	return Format(name), nil
}

// Compression is the method by which a file is compressed.
type Compression string

// Supported methods of compression.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// ByName determines the format and compression of a file from its name. The default is plain text.
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

// MaxRow is the maximal size in bytes of a line of JSON or a row of Parquet.
const MaxRow = 64 << 20

// Row is one row of a file. Numbers begin at 1; in JSONL files they are line numbers.
type Row struct {
	Unit   string // of Number: "line" or "row"
	Number int64
	// Text is valid until the next row is read.
	Text []byte
	// Unread lists the columns of Parquet that were not read.
	Unread []string
	// Err, if not nil, is the reason why the row has no text.
	Err *RowError
}

// A RowError reports a row that holds no text. Rows after it can be read.
type RowError struct {
	Unit    string // "line" or "row"
	Number  int64
	Problem string
	// Field is true if the row is valid, so that the text may be in another field.
	Field bool
}

func (e *RowError) Error() string { return fmt.Sprintf("%s %d: %s", e.Unit, e.Number, e.Problem) }

// A DamagedError reports a file that cannot be read to its end.
type DamagedError struct {
	Format string // such as "gzip"
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("damaged, or not a %s file: %v", e.Format, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// maxWindow bounds the window of a zstd frame, and thus its memory. The zstd program has the same
// limit.
const maxWindow = 128 << 20

// Decompress returns a reader of the decompressed content of r. Close releases memory and
// leaves r open.
func Decompress(r io.Reader, kind Compression) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var out io.ReadCloser
	var err error
	switch kind {
	case Gzip:
		out, err = gzip.NewReader(in)
	case Zstd:
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true)); err == nil {
			out = z.IOReadCloser()
		}
	default:
		return io.NopCloser(r), nil
	}
	if err != nil {
		return nil, &DamagedError{string(kind), err}
	}
	return &decompressor{out, kind}, nil
}

type decompressor struct {
	io.ReadCloser
	kind Compression
}

func (d *decompressor) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &DamagedError{string(d.kind), err}
	}
	return n, err
}
