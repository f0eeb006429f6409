package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// File is an open file whose header has been read and checked. Its tensors are read on demand, and
// checked against their digests if the file has them. It is safe for concurrent use.
type File struct {
	r      io.ReaderAt
	closer io.Closer
	name   string // for messages
	begin  int64  // of the data
	header header
	index  map[string]Info // of tensors, by name

	verified sync.Map // names of tensors that were read without an error
}

// Open opens the file at path and checks its header. Errors about the content wrap ErrFormat.
func Open(path vfs.Path) (*File, error) {
	f, err := path.Open()
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		var file *File
		if file, err = NewFile(f, info.Size(), path.Name); err == nil {
			file.closer = f
			return file, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}

// NewFile reads and checks the header of a file of size bytes. Errors refer to the file by name.
// Errors about the content wrap ErrFormat.
func NewFile(r io.ReaderAt, size int64, name string) (*File, error) {
	malformed := func(err error) error { return fmt.Errorf("%s: %w: %w", name, ErrFormat, err) }
	if size < lengthSize {
		return nil, malformed(fmt.Errorf("%d bytes are too few for a header", size))
	}
	var length [lengthSize]byte
	if err := readAt(r, length[:], 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderSize || n > uint64(size-lengthSize) {
		return nil, malformed(fmt.Errorf("header of %d bytes in a file of %d, want at most %d; "+
			"the file begins with %q", n, size, maxHeaderSize, length))
	}
	head := make([]byte, lengthSize+n)
	if err := readAt(r, head, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	h, err := parseHeader(head[lengthSize:], size-int64(len(head)))
	if err != nil {
		return nil, malformed(err)
	}
	if want := []byte(h.ofHeader); len(want) > 0 {
		if bytes.Count(head, want) != 1 {
			return nil, fmt.Errorf("%s: header: %w: the digest does not occur exactly once", name, ErrFormat)
		}
		if err := checkDigest(hexDigest(bytes.Replace(head, want, []byte(noDigest), 1)),
			h.ofHeader); err != nil {
			return nil, fmt.Errorf("%s: header: %w", name, err)
		}
	}
	f := &File{r: r, name: name, begin: int64(len(head)), header: h,
		index: make(map[string]Info, len(h.infos))}
	for _, info := range h.infos {
		f.index[info.Name] = info
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Metadata returns the file's metadata without the digests.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Digest returns a digest of the whole content, or "" if the file has none.
func (f *File) Digest() string { return f.header.ofHeader }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 {
	size := f.begin
	if n := len(f.header.infos); n > 0 {
		size += f.header.infos[n-1].End
	}
	return size
}

// Tensors describes the file's tensors in the order of their data.
func (f *File) Tensors() []Info { return slices.Clone(f.header.infos) }

// Tensor returns a tensor whose data is read, and verified if the file has digests, on each access.
// If the data does not match its digest, the error wraps ErrChecksum.
func (f *File) Tensor(name string) (Tensor, error) {
	info, ok := f.index[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: there is no tensor %s", f.name, name)
	}
	return Tensor{Name: name, DType: info.DType, Shape: slices.Clone(info.Shape),
		Write: func(w io.Writer) error {
			return f.read(info, w)
		}}, nil
}

// Verify reads all tensors that have not been read yet and checks them against their digests. It
// reports whether the file has digests. If tensors differ, the error names them and wraps
// ErrChecksum.
func (f *File) Verify() (verified bool, err error) {
	if f.Digest() == "" {
		return false, nil
	}
	var damaged []string
	for _, info := range f.header.infos {
		if _, done := f.verified.Load(info.Name); done {
			continue
		}
		err := f.read(info, io.Discard)
		if errors.Is(err, ErrChecksum) {
			damaged = append(damaged, strconv.Quote(info.Name))
		} else if err != nil {
			return false, err
		}
	}
	if len(damaged) > 0 {
		return false, fmt.Errorf("%s: %w in %d of %d tensors: %s", f.name, ErrChecksum, len(damaged),
			len(f.header.infos), strings.Join(damaged, ", "))
	}
	return true, nil
}

// read writes the data of a tensor to w, in pieces of whole elements, and compares it with its
// digest.
func (f *File) read(info Info, w io.Writer) error {
	want, hasDigest := f.header.ofTensors[info.Name]
	sum := digest.New()
	if hasDigest { // hashing takes longer than reading
		w = io.MultiWriter(sum, w)
	}
	buffer := make([]byte, min(chunk, info.End-info.Begin))
	for at := info.Begin; at < info.End; {
		part := buffer[:min(int64(len(buffer)), info.End-at)]
		if err := readAt(f.r, part, f.begin+at); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", f.name, info.Name, err)
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
		at += int64(len(part))
	}
	if hasDigest {
		if err := checkDigest(fmt.Sprintf("%x", sum.Sum(nil)), want); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", f.name, info.Name, err)
		}
	}
	f.verified.Store(info.Name, true)
	return nil
}

// readAt fills p from offset on. If the file ends too early, the error wraps ErrFormat.
func readAt(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case err == nil, errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w at byte %d", ErrFormat, io.ErrUnexpectedEOF, offset+int64(n))
	}
	return err
}
