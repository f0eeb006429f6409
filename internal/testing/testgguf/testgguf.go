// Package testgguf reads GGUF files in tests. It expects files of version 3, and fails the test if
// a file is malformed.
package testgguf

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
)

// Info describes a tensor in a GGUF file.
type Info struct {
	Name  string
	Type  gguf.Type
	Shape []int // row-major
	Data  []byte
}

// File is the content of a GGUF file.
type File struct {
	Entries []gguf.Entry
	Tensors []Info
}

// Value returns the value of a metadata entry, or nil if there is none.
func (f *File) Value(key string) any {
	for _, e := range f.Entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// kinds lists the Go types of metadata values by their type number in the format.
var kinds = []reflect.Type{
	reflect.TypeFor[uint8](), reflect.TypeFor[int8](), reflect.TypeFor[uint16](),
	reflect.TypeFor[int16](),
	reflect.TypeFor[uint32](), reflect.TypeFor[int32](), reflect.TypeFor[float32](),
	reflect.TypeFor[bool](),
	reflect.TypeFor[string](), nil, reflect.TypeFor[uint64](), reflect.TypeFor[int64](),
	reflect.TypeFor[float64](),
}

const kindArray = 9

type reader struct {
	t testing.TB
	r *bytes.Reader
}

// Open reads the file at path.
func Open(t testing.TB, path string) *File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(t, data)
}

// Parse reads the content of a file.
func Parse(t testing.TB, data []byte) *File {
	t.Helper()
	r := reader{t, bytes.NewReader(data)}
	if magic := number[[4]byte](r); string(magic[:]) != "GGUF" || number[uint32](r) != 3 {
		t.Fatal("not a GGUF file of version 3")
	}
	f := &File{Tensors: make([]Info, number[uint64](r))}
	for range number[uint64](r) {
		f.Entries = append(f.Entries, gguf.Entry{Key: r.text(), Value: r.value()})
	}
	offsets := make([]uint64, len(f.Tensors))
	for i := range f.Tensors {
		info := &f.Tensors[i]
		info.Name = r.text()
		for range number[uint32](r) {
			info.Shape = append(info.Shape, int(number[uint64](r)))
		}
		slices.Reverse(info.Shape)
		info.Type, offsets[i] = gguf.Type(number[uint32](r)), number[uint64](r)
	}
	start := (len(data) - r.r.Len() + 31) / 32 * 32
	for i := range f.Tensors {
		info := &f.Tensors[i]
		elements, size := info.Type.Block()
		for _, d := range info.Shape {
			size *= d
		}
		begin := start + int(offsets[i])
		info.Data = data[begin : begin+size/elements]
	}
	return f
}

func (r reader) text() string {
	data := make([]byte, number[uint64](r))
	if _, err := r.r.Read(data); err != nil && len(data) > 0 {
		r.t.Fatal(err)
	}
	return string(data)
}

func (r reader) value() any {
	kind := number[uint32](r)
	if kind != kindArray {
		return r.single(kind).Interface()
	}
	kind = number[uint32](r)
	list := reflect.MakeSlice(reflect.SliceOf(kinds[kind]), 0, 0)
	for range number[uint64](r) {
		list = reflect.Append(list, r.single(kind))
	}
	return list.Interface()
}

func (r reader) single(kind uint32) reflect.Value {
	v := reflect.New(kinds[kind])
	if kinds[kind].Kind() == reflect.String {
		v.Elem().SetString(r.text())
	} else if err := binary.Read(r.r, binary.LittleEndian, v.Interface()); err != nil {
		r.t.Fatal(err)
	}
	return v.Elem()
}

func number[T any](r reader) (v T) {
	if err := binary.Read(r.r, binary.LittleEndian, &v); err != nil {
		r.t.Fatal(err)
	}
	return v
}
