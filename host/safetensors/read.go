package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

// File is an open file whose header has been read and checked. Its tensors are
// read one by one, or all at once with ReadAll. It is safe for use by several
// goroutines.
type File struct {
	r      io.ReaderAt
	closer io.Closer
	name   string // for messages
	head   []byte // length and header, as in the file
	header header
	index  map[string]int // of a tensor's name in header.infos
}

// Open opens the file at path and checks its header. Errors about the content
// wrap ErrFormat.
func Open(path vfs.Path) (*File, error) {
	f, err := path.Open()
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file, err := newFile(f, info.Size(), path.Name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file.closer = f
	return file, nil
}

// NewFile reads and checks the header of a file of size bytes that r gives
// access to. Errors about the content wrap ErrFormat.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	return newFile(r, size, "safetensors")
}

func newFile(r io.ReaderAt, size int64, name string) (*File, error) {
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
		return nil, malformed(fmt.Errorf("header of %d bytes in a file of %d, want at most %d", n, size, maxHeaderSize))
	}
	head := make([]byte, lengthSize+n)
	if err := readAt(r, head, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	h, err := parseHeader(head[lengthSize:], size-int64(len(head)))
	if err != nil {
		return nil, malformed(err)
	}
	f := &File{r: r, name: name, head: head, header: h, index: make(map[string]int, len(h.infos))}
	for i, info := range h.infos {
		f.index[info.Name] = i
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

// Metadata returns the file's metadata, with the entry of DigestKey where there is one.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Tensors describes the file's tensors in the order of their data.
func (f *File) Tensors() []Info { return slices.Clone(f.header.infos) }

// Tensor reads one tensor. It does not verify the file's digest: that takes a
// pass over the whole file (see Verify).
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: no tensor %q", f.name, name)
	}
	return f.read(f.header.infos[i])
}

// ReadAll reads every tensor, in the order of the data, and verifies the digest
// on the way if the file states one.
func (f *File) ReadAll() ([]Tensor, error) {
	sum, err := f.newHash()
	if err != nil {
		return nil, err
	}
	tensors := make([]Tensor, len(f.header.infos))
	for i, info := range f.header.infos {
		if tensors[i], err = f.read(info); err != nil {
			return nil, err
		}
		if sum != nil {
			sum.Write(tensors[i].Data)
		}
	}
	if err := f.checkDigest(sum); err != nil {
		return nil, err
	}
	return tensors, nil
}

// Verify reads the whole file and compares its content with the digest that its
// metadata states. It reports whether there was one to compare with; a mismatch
// is an error that wraps ErrChecksum.
func (f *File) Verify() (verified bool, err error) {
	sum, err := f.newHash()
	if sum == nil || err != nil {
		return false, err
	}
	infos, offset := f.header.infos, int64(len(f.head))
	if len(infos) > 0 {
		want := infos[len(infos)-1].End
		n, err := io.Copy(sum, io.NewSectionReader(f.r, offset, want))
		if err != nil {
			return false, fmt.Errorf("%s: %w", f.name, err)
		}
		if n != want {
			return false, fmt.Errorf("%s: %w: %w at byte %d", f.name, ErrFormat, io.ErrUnexpectedEOF, offset+n)
		}
	}
	if err := f.checkDigest(sum); err != nil {
		return false, err
	}
	return true, nil
}

// newHash begins the hash of the file, nil when there is no digest to compare with.
func (f *File) newHash() (hash.Hash, error) {
	if f.header.digest == "" {
		return nil, nil
	}
	sum, err := headerHash(f.head, f.header.digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.name, ErrFormat, err)
	}
	return sum, nil
}

func (f *File) checkDigest(sum hash.Hash) error {
	if sum == nil {
		return nil
	}
	if err := checkDigest(sum, f.header.digest); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

func (f *File) read(info Info) (Tensor, error) {
	t := Tensor{Name: info.Name, DType: info.DType, Shape: slices.Clone(info.Shape), Data: make([]byte, info.End-info.Begin)}
	if err := readAt(f.r, t.Data, int64(len(f.head))+info.Begin); err != nil {
		return Tensor{}, fmt.Errorf("%s: tensor %q: %w", f.name, info.Name, err)
	}
	return t, nil
}

// readAt fills p from offset on; a file that has become shorter is malformed.
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

// ReadFile reads all tensors and the metadata of the file at path, and verifies
// its digest if it states one.
func ReadFile(path vfs.Path) (tensors []Tensor, metadata map[string]string, err error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if tensors, err = f.ReadAll(); err != nil {
		return nil, nil, err
	}
	return tensors, f.Metadata(), nil
}
