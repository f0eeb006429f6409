package source

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A decompressed text may have bombFree bytes, or bombRatio times as many as its
// compressed form, whichever is more. Prose shrinks to a third or a tenth, logs to a
// fiftieth at best.
const (
	bombFree  = 64 << 20
	bombRatio = 200
)

// maxWindow is how far back a zstd frame may refer, and so the memory that it takes. The
// zstd program has the same limit.
const maxWindow = 128 << 20

// Decompress returns a reader of the decompressed content of r. Close releases memory and
// leaves r open.
func Decompress(r io.Reader, kind Compression) (io.ReadCloser, error) {
	in := &counter{r: r}
	d := &decompressor{in: in, kind: string(kind)}
	switch kind {
	case None:
		return io.NopCloser(r), nil
	case Gzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, d.explain(err)
		}
		d.out, d.close = z, func() { z.Close() }
	case Zstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, d.explain(err)
		}
		d.out, d.close = z, z.Close
	default:
		return nil, fmt.Errorf("unknown compression %q", kind)
	}
	return d, nil
}

// counter counts the bytes that are read through it.
type counter struct {
	r   io.Reader
	n   int64
	err error // of r itself, other than the end
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// decompressor reads decompressed bytes and compares their number with that of the
// compressed ones.
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
		return 0, &DamagedError{d.kind, fmt.Sprintf("%d MiB so far, from %d KiB: more than %d times as much, as in a decompression bomb; if it is text all the same, decompress it first",
			d.n>>20, d.in.n>>10, bombRatio)}
	}
	if err != nil && err != io.EOF {
		err = d.explain(err)
	}
	return n, err
}

// explain returns the error of the file itself, or else says what is wrong with what it
// holds.
func (d *decompressor) explain(err error) error {
	switch {
	case d.in.err != nil:
		return d.in.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &DamagedError{d.kind, "the data end too early: the file is truncated"}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zstd.ErrMagicMismatch):
		return &DamagedError{d.kind, "this is no " + d.kind + " file, though its name says so"}
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &DamagedError{d.kind, fmt.Sprintf("it needs a window of more than %d MiB: compress it without --long", maxWindow>>20)}
	}
	return &DamagedError{d.kind, "damaged: " + err.Error()}
}

func (d *decompressor) Close() error {
	d.close()
	return nil
}
