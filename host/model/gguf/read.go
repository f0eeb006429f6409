package gguf

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

// Info describes a tensor in a file, without its data.
type Info struct {
	Name  string
	Type  Type
	Shape []int // row-major
	begin int64 // in the file
	size  int64
}

// File is an open file whose header has been read and checked.
type File struct {
	r       io.ReaderAt
	close   func() error
	entries []Entry
	tensors []Info
}

// Open opens the file at path and checks its header. Errors about the content wrap
// [ErrFormat].
func Open(path vfs.Path) (*File, error) {
	f, err := path.Open()
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		var file *File
		if file, err = NewFile(f, info.Size()); err == nil {
			file.close = f.Close
			return file, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
}

// NewFile reads and checks the header of a file of size bytes, read through r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	d := &decoder{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: size}
	f := &File{r: r, close: func() error { return nil }}
	if err := d.header(f); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Entries lists the entries in the order of the file.
func (f *File) Entries() []Entry { return f.entries }

// Value returns the value of an entry; nil if there is none.
func (f *File) Value(key string) any {
	for _, e := range f.entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// Tensors describes the tensors in the order of the file.
func (f *File) Tensors() []Info { return f.tensors }

// Bytes reads the data of a tensor.
func (f *File) Bytes(t Info) ([]byte, error) {
	data := make([]byte, t.size)
	if _, err := f.r.ReadAt(data, t.begin); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return data, nil
}

// Values reads a tensor and returns its decoded numbers.
func (f *File) Values(t Info) ([]float32, error) {
	data, err := f.Bytes(t)
	if err != nil {
		return nil, err
	}
	return Decode(t.Type, data)
}

// decoder reads a header. It never reads past the end of the file, and allocates no more than the
// rest of the file could hold.
type decoder struct {
	r        *bufio.Reader
	at, size int64
}

func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrFormat, d.at, fmt.Sprintf(format, args...))
}

func (d *decoder) bytes(n int64) ([]byte, error) {
	if n > d.size-d.at {
		return nil, d.fail("%d bytes are claimed, and %d are left in the file", n, d.size-d.at)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(d.r, data); err != nil {
		return nil, d.fail("%v", err)
	}
	d.at += n
	return data, nil
}

func (d *decoder) text() (string, error) {
	n, err := readNumber[uint64](d)
	if err != nil {
		return "", err
	}
	if n > uint64(d.size-d.at) {
		return "", d.fail("a text of %d bytes, and %d are left in the file", n, d.size-d.at)
	}
	data, err := d.bytes(int64(n))
	return string(data), err
}

// header reads everything before the data.
func (d *decoder) header(f *File) error {
	start, err := d.bytes(4)
	if err != nil || string(start) != magic {
		return errors.Join(d.fail("it does not begin with %q", magic), err)
	}
	v, err := readNumber[uint32](d)
	if err == nil && v != version {
		err = d.fail("version %d, want %d", v, version)
	}
	if err != nil {
		return err
	}
	tensors, err := readNumber[uint64](d)
	if err != nil {
		return err
	}
	entries, err := readNumber[uint64](d)
	if err != nil {
		return err
	}
	keys := map[string]bool{}
	for range entries {
		var e Entry
		if e.Key, err = d.name(keys); err != nil {
			return err
		}
		if e.Value, err = d.value(); err != nil {
			return fmt.Errorf("entry %q: %w", e.Key, err)
		}
		f.entries = append(f.entries, e)
	}
	names := map[string]bool{}
	for range tensors {
		t, err := d.tensor(names)
		if err != nil {
			return err
		}
		f.tensors = append(f.tensors, t)
	}
	return d.place(f)
}

// name reads a name, which must be unique.
func (d *decoder) name(seen map[string]bool) (string, error) {
	s, err := d.text()
	if err == nil && (s == "" || seen[s]) {
		err = d.fail("the name %q is empty or used twice", s)
	}
	seen[s] = true
	return s, err
}

// tensor reads the description of a tensor; begin counts from the start of the data.
func (d *decoder) tensor(names map[string]bool) (t Info, err error) {
	if t.Name, err = d.name(names); err != nil {
		return t, err
	}
	rank, err := readNumber[uint32](d)
	if err == nil && (rank == 0 || rank > maxRank) {
		err = d.fail("%d axes, want 1 to %d", rank, maxRank)
	}
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	t.Shape = make([]int, rank)
	for i := range t.Shape {
		n, err := readNumber[uint64](d)
		if err != nil {
			return t, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if n > 2*uint64(d.size) {
			n = 0 // more than the file can hold, at two elements per byte; size rejects it
		}
		t.Shape[len(t.Shape)-1-i] = int(n)
	}
	kind, err := readNumber[uint32](d)
	if err != nil {
		return t, err
	}
	offset, err := readNumber[uint64](d)
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	if t.size, err = t.Type.size(t.Shape); err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, d.fail("%v", err))
	}
	if offset > uint64(d.size) || t.size > d.size {
		return t, d.fail("tensor %q: %d bytes at offset %d of the data, in a file of %d bytes", t.Name, t.size, offset, d.size)
	}
	t.begin = int64(offset)
	return t, nil
}

// place finds the beginning of the data, and checks that tensors are contiguous in it.
func (d *decoder) place(f *File) error {
	to := int64(alignment)
	if v := f.Value(alignmentKey); v != nil {
		n, ok := v.(uint32)
		if !ok || n == 0 || n&(n-1) != 0 || n > 1<<20 {
			return d.fail("%s is %v, want a power of two as uint32", alignmentKey, v)
		}
		to = int64(n)
	}
	start := align(d.at, to)
	order := make([]*Info, len(f.tensors))
	for i := range f.tensors {
		order[i] = &f.tensors[i]
	}
	slices.SortFunc(order, func(a, b *Info) int { return cmp.Compare(a.begin, b.begin) })
	end := start
	for _, t := range order {
		if t.begin%to != 0 {
			return d.fail("tensor %q begins at %d of the data, which is no multiple of %d", t.Name, t.begin, to)
		}
		t.begin += start
		if t.begin < end || t.size > d.size-t.begin {
			return d.fail("tensor %q at bytes %d to %d overlaps another one or the end of the file, %d", t.Name, t.begin, t.begin+t.size, d.size)
		}
		end = t.begin + t.size
	}
	return nil
}
