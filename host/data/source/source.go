// Package source reads the texts in files: plain text, JSON rows and Parquet, each possibly
// compressed.
//
// It knows only file formats. A problem in a file gives an error with its location: in a damaged
// file ([DamagedError]), or in a row ([RowError]), after which reading can continue with the next
// row. The memory that a file can make the program allocate is limited: by [MaxRow], by a maximum
// for the claimed size and number of values of a Parquet page, and by a maximal decompression
// ratio.
package source

import (
	"bufio"
	"errors"
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

// The formats.
const (
	Text    Format = "text"    // plain text
	JSONL   Format = "jsonl"   // a JSON object in each line
	Parquet Format = "parquet" // columns
)

// Formats lists all formats.
var Formats = []Format{Text, JSONL, Parquet}

// ParseFormat returns the format with that name; "" is accepted and means no format.
func ParseFormat(name string) (Format, error) {
	if name != "" && !slices.Contains(Formats, Format(name)) {
		return "", fmt.Errorf("format %q: want text, jsonl or parquet", name)
	}
	return Format(name), nil
}

// Compression is the compression of a file.
type Compression string

// The kinds of compression.
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

// ByContent determines the compression of a file from its first bytes.
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
	// Unread lists the columns of Parquet that were not read.
	Unread []string
	// Err, if not nil, is the reason why there is no text.
	Err *RowError
}

// A RowError reports a row that holds no text. Rows after it can be read.
type RowError struct {
	Unit    string // "line" or "row"
	Number  int64
	Problem string
	// Field reports that the row is valid, but the text may be in another field.
	Field bool
}

func (e *RowError) Error() string { return fmt.Sprintf("%s %d: %s", e.Unit, e.Number, e.Problem) }

// A DamagedError reports a file that cannot be read to its end.
type DamagedError struct {
	Format  string // damaged format, such as "gzip"
	Problem string
}

func (e *DamagedError) Error() string { return e.Format + ": " + e.Problem }

// A decompressed text may have bombFree bytes, or bombRatio times the size of its compressed form,
// whichever is more. Prose shrinks to a third or a tenth, logs to a fiftieth at best.
const (
	bombFree  = 64 << 20
	bombRatio = 200
)

// maxWindow bounds the window of a zstd frame, and so its memory. The zstd program has the same
// limit.
const maxWindow = 128 << 20

// Decompress returns a reader of the decompressed content of r. Close releases memory and
// leaves r open.
func Decompress(r io.Reader, kind Compression) (io.ReadCloser, error) {
	if kind == None {
		return io.NopCloser(r), nil
	}
	in := &counter{r: r}
	d := &decompressor{in: in, kind: string(kind)}
	buffered := bufio.NewReaderSize(in, 1<<16)
	switch kind {
	case Gzip:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, d.explain(err)
		}
		d.out, d.close = z, func() { z.Close() }
	case Zstd:
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, d.explain(err)
		}
		d.out, d.close = z, z.Close
	default:
		return nil, fmt.Errorf("unknown compression %q", kind)
	}
	return d, nil
}

type counter struct {
	r   io.Reader
	n   int64
	err error // of r itself, except io.EOF
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// decompressor reads decompressed bytes and compares their number with that of the compressed ones.
type decompressor struct {
	in    *counter
	out   io.Reader
	close func()
	kind  string
	n     int64
}

func (d *decompressor) Read(p []byte) (int, error) {
	n, err := d.out.Read(p)
	d.n += int64(n)
	if d.n > bombFree && d.n/bombRatio > d.in.n {
		return 0, &DamagedError{d.kind, fmt.Sprintf("%d MiB so far, from %d KiB: more than %d times "+
			"as much, as in a decompression bomb; if it is text all the same, decompress it first",
			d.n>>20, d.in.n>>10, bombRatio)}
	}
	if err != nil && err != io.EOF {
		err = d.explain(err)
	}
	return n, err
}

// explain returns the read error of the file itself, or else a description of its damage.
func (d *decompressor) explain(err error) error {
	switch {
	case d.in.err != nil:
		return d.in.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &DamagedError{d.kind, "the data end too early: the file is truncated"}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zstd.ErrMagicMismatch):
		if d.n > 0 {
			return &DamagedError{d.kind, "damaged: something else follows what is compressed"}
		}
		return &DamagedError{d.kind, "this is no " + d.kind + " file, though its name says so"}
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &DamagedError{d.kind, fmt.Sprintf("it needs a window of more than %d MiB: "+
			"compress it without --long", maxWindow>>20)}
	}
	return &DamagedError{d.kind, "damaged: " + err.Error()}
}

func (d *decompressor) Close() error {
	d.close()
	return nil
}
