package gguf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// ErrFormat is wrapped by every error about bytes that are not a well-formed GGUF file.
var ErrFormat = errors.New("malformed GGUF")

// maxHeader bounds the bytes before the data; the largest published vocabularies take about 20 MB.
const maxHeader = 256 << 20

// alignmentKey is the entry with another alignment of tensors.
const alignmentKey = "general.alignment"

// Info describes a tensor in a file, without its data.
type Info struct {
	Name        string
	Type        Type
	Shape       []int // row-major
	begin, size int64 // in the file
}

// File is an open file whose header has been read and checked.
type File struct {
	Entries []Entry
	Tensors []Info
	r       io.ReaderAt
	close   func() error
}

// Open opens the file at path and checks its header. Errors about the content wrap [ErrFormat].
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
	return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
}

// NewFile reads and checks the header of a file of size bytes, read through r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	head := min(size, maxHeader)
	d := &decoder{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, head), 1<<16), size: head}
	f := &File{r: r, close: func() error { return nil }}
	if err := d.header(f); err != nil {
		return nil, err
	}
	return f, d.place(f, size)
}

// ReadFile reads back a file that [WriteFile] wrote with these entries, and calls each with the
// decoded numbers of each tensor.
func ReadFile(path vfs.Path, entries []Entry,
	each func(name string, values []float32) error) (err error) {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if !reflect.DeepEqual(f.Entries, entries) {
		return fmt.Errorf("%s: the entries are not the ones that were written", path)
	}
	for _, t := range f.Tensors {
		values, err := f.Values(t)
		if err == nil {
			err = each(t.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", path, t.Name, err)
		}
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Value returns the value of an entry; nil if there is none.
func (f *File) Value(key string) any {
	for _, e := range f.Entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// Bytes reads the data of a tensor.
func (f *File) Bytes(t Info) ([]byte, error) {
	data := make([]byte, t.size)
	if n, err := f.r.ReadAt(data, t.begin); n < len(data) {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return data, nil
}

// Values reads a tensor and returns its decoded numbers, times its scale if it has one: see
// [Info.ScaleName].
func (f *File) Values(t Info) ([]float32, error) {
	values, err := f.decoded(t)
	name := t.ScaleName()
	at := slices.IndexFunc(f.Tensors, func(s Info) bool { return s.Name == name })
	if err != nil || name == "" || at < 0 {
		return values, err
	}
	scale, err := f.decoded(f.Tensors[at])
	if err != nil || len(scale) != 1 {
		return nil, errors.Join(err, fmt.Errorf("tensor %q has %d numbers, want 1", name, len(scale)))
	}
	for i := range values {
		values[i] *= scale[0]
	}
	return values, nil
}

func (f *File) decoded(t Info) ([]float32, error) {
	data, err := f.Bytes(t)
	if err != nil {
		return nil, err
	}
	return Decode(t.Type, data)
}

// ScaleName returns the name of the tensor by whose only number llama.cpp multiplies the product of
// a weight of a block: "blk.0.attn_q.scale" for "blk.0.attn_q.weight"; "" for other tensors.
// Weights in NVFP4 have one.
func (t Info) ScaleName() string {
	layer, ok := strings.CutSuffix(t.Name, ".weight")
	if !ok || !strings.HasPrefix(layer, "blk.") || len(t.Shape) != 2 {
		return ""
	}
	return layer + ".scale"
}

// decoder reads a header. It never reads past size, and allocates in proportion to what it has
// read: counts in the file are not trusted.
type decoder struct {
	r        *bufio.Reader
	at, size int64
}

func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrFormat, d.at, fmt.Sprintf(format, args...))
}

func (d *decoder) bytes(count uint64, size int) ([]byte, error) {
	if left := uint64(d.size - d.at); count > left/uint64(size) {
		return nil, d.fail("%d elements of %d bytes are announced, but %d bytes are left",
			count, size, left)
	}
	data := make([]byte, int(count)*size)
	if _, err := io.ReadFull(d.r, data); err != nil {
		return nil, d.fail("%v", err)
	}
	d.at += int64(len(data))
	return data, nil
}

func readNumber[T any](d *decoder) (v T, err error) {
	data, err := d.bytes(1, binary.Size(v))
	if err == nil {
		_, err = binary.Decode(data, binary.LittleEndian, &v)
	}
	return v, err
}

func (d *decoder) text() (string, error) {
	n, err := readNumber[uint64](d)
	if err != nil {
		return "", err
	}
	data, err := d.bytes(n, 1)
	return string(data), err
}

func (d *decoder) name(seen map[string]bool) (string, error) {
	s, err := d.text()
	if err == nil && (s == "" || seen[s]) {
		err = d.fail("the name %q is empty or used twice", s)
	}
	seen[s] = true
	return s, err
}

// header reads everything before the data. Version 2 differs from 3 only in that 3 also allows
// files of big-endian numbers.
func (d *decoder) header(f *File) error {
	start, err := d.bytes(1, len(magic))
	if err != nil || string(start) != magic {
		return errors.Join(d.fail("the file does not begin with %q", magic), err)
	}
	v, err := readNumber[uint32](d)
	if err == nil && v != version && v != version-1 {
		err = d.fail("version %d with little-endian numbers, want %d or %d", v, version-1, version)
	}
	var counts [2]uint64 // tensors, entries
	if err == nil {
		counts, err = readNumber[[2]uint64](d)
	}
	keys, names := map[string]bool{}, map[string]bool{}
	for ; err == nil && counts[1] > 0; counts[1]-- {
		var e Entry
		if e.Key, err = d.name(keys); err == nil {
			if e.Value, err = d.value(); err != nil {
				err = fmt.Errorf("entry %q: %w", e.Key, err)
			}
		}
		f.Entries = append(f.Entries, e)
	}
	for ; err == nil && counts[0] > 0; counts[0]-- {
		var t Info
		if t.Name, err = d.name(names); err == nil {
			if err = d.tensor(&t); err != nil {
				err = fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
		f.Tensors = append(f.Tensors, t)
	}
	return err
}

func (d *decoder) value() (any, error) {
	kind, err := readNumber[uint32](d)
	count, list := uint64(1), kind == kindArray
	if err == nil && list {
		if kind, err = readNumber[uint32](d); err == nil {
			count, err = readNumber[uint64](d)
		}
	}
	if err == nil && (int(kind) >= len(kinds) || kinds[kind] == nil) {
		err = d.fail("the type of value %d, want a number, text, or a list of one of them", kind)
	}
	if err != nil {
		return nil, err
	}
	values, err := d.values(kind, count)
	if err != nil || list {
		return values, err
	}
	return reflect.ValueOf(values).Index(0).Interface(), nil
}

func (d *decoder) values(kind uint32, count uint64) (any, error) {
	if kinds[kind].Kind() == reflect.String {
		list := []string{}
		for ; count > 0; count-- {
			s, err := d.text()
			if err != nil {
				return nil, err
			}
			list = append(list, s)
		}
		return list, nil
	}
	data, err := d.bytes(count, int(kinds[kind].Size()))
	if err != nil {
		return nil, err
	}
	list := reflect.MakeSlice(reflect.SliceOf(kinds[kind]), int(count), int(count))
	_, err = binary.Decode(data, binary.LittleEndian, list.Interface())
	return list.Interface(), err
}

// tensor reads the description of a tensor; begin counts from the start of the data.
func (d *decoder) tensor(t *Info) error {
	rank, err := readNumber[uint32](d)
	if err == nil && (rank == 0 || rank > maxRank) {
		err = d.fail("%d axes, want 1 to %d", rank, maxRank)
	}
	for ; err == nil && rank > 0; rank-- {
		var n uint64
		n, err = readNumber[uint64](d)
		t.Shape = append(t.Shape, int(min(n, maxAxis+1)))
	}
	if err != nil {
		return err
	}
	slices.Reverse(t.Shape)
	if slices.Max(t.Shape) > maxAxis {
		return d.fail("an axis of more than %d elements", maxAxis)
	}
	if t.Type, err = readNumber[Type](d); err != nil {
		return err
	}
	offset, err := readNumber[uint64](d)
	if err != nil {
		return err
	}
	if t.size, err = t.Type.size(t.Shape); err != nil {
		if elements, _ := t.Type.Block(); elements == 0 {
			return err // the file may be well-formed
		}
		return d.fail("%v", err)
	}
	t.begin = int64(min(offset, 1<<62)) // place refuses what is out of the file
	return nil
}

// maxAxis bounds an axis, so that its length is an int.
const maxAxis = 1<<31 - 1

// place finds the beginning of the data, and checks that each tensor has a part of the file to
// itself.
func (d *decoder) place(f *File, size int64) error {
	to := int64(alignment)
	if v := f.Value(alignmentKey); v != nil {
		n, ok := v.(uint32)
		if !ok || n == 0 || n&(n-1) != 0 || n > 1<<20 {
			return d.fail("%s is %v, want a power of two as uint32", alignmentKey, v)
		}
		to = int64(n)
	}
	start := align(d.at, to)
	order := lists.Make(len(f.Tensors), func(i int) *Info { return &f.Tensors[i] })
	slices.SortFunc(order, func(a, b *Info) int { return cmp.Compare(a.begin, b.begin) })
	end := int64(0)
	for _, t := range order {
		if t.begin%to != 0 || t.begin < end {
			return d.fail("tensor %q begins at byte %d of the data, want a multiple of %d from %d on",
				t.Name, t.begin, to, end)
		}
		if left := size - start - t.begin; t.size > left {
			return d.fail("tensor %q has %d bytes, and the file has %d of them: it is not complete",
				t.Name, t.size, max(0, left))
		}
		end = t.begin + t.size
		t.begin += start
	}
	return nil
}
