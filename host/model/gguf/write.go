package gguf

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// A Tensor is a named array whose data is produced on demand.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // row-major: [rows, columns]
	// Write writes the data: row after row, each in whole blocks.
	Write func(w io.Writer) error
}

// WriteFile writes entries and tensors to path, in their order. In case of an error, path keeps its
// previous content.
func WriteFile(ctx context.Context, path vfs.Path, entries []Entry, tensors []Tensor) error {
	err := atomicfile.Write(path, func(w io.Writer) error { return Write(ctx, w, entries, tensors) })
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Write writes entries and tensors to w, in their order. It requests the data of one tensor at a
// time, and retains none of it.
func Write(ctx context.Context, w io.Writer, entries []Entry, tensors []Tensor) error {
	head, err := header(entries, tensors)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<20)
	if _, err := out.Write(head); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeTensor(out, t); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return out.Flush()
}

// writeTensor writes the data of a tensor and zero padding up to the next one.
func writeTensor(w io.Writer, t Tensor) error {
	want, err := t.Type.size(t.Shape)
	if err != nil {
		return err
	}
	counted := &counter{w: w}
	if err := t.Write(counted); err != nil {
		return err
	}
	if counted.n != want {
		return fmt.Errorf("%d bytes for the shape %v of %s, want %d", counted.n, t.Shape, t.Type, want)
	}
	_, err = w.Write(make([]byte, align(want, alignment)-want))
	return err
}

// counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func header(entries []Entry, tensors []Tensor) ([]byte, error) {
	e := &encoder{names: map[string]bool{}}
	e.buffer.WriteString(magic)
	e.number(uint32(version), uint64(len(tensors)), uint64(len(entries)))
	for _, entry := range entries {
		if err := e.entry(entry); err != nil {
			return nil, fmt.Errorf("entry %q: %w", entry.Key, err)
		}
	}
	clear(e.names)
	offset := int64(0)
	for _, t := range tensors {
		size, err := t.Type.size(t.Shape)
		if err == nil {
			err = e.name(t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		e.number(uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			e.number(uint64(d))
		}
		e.number(uint32(t.Type), uint64(offset))
		offset += align(size, alignment)
	}
	n := int64(e.buffer.Len())
	e.buffer.Write(make([]byte, align(n, alignment)-n))
	return e.buffer.Bytes(), nil
}

type encoder struct {
	buffer bytes.Buffer
	names  map[string]bool
}

func (e *encoder) number(values ...any) {
	for _, v := range values {
		_ = binary.Write(&e.buffer, binary.LittleEndian, v)
	}
}

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	e.buffer.WriteString(s)
}

func (e *encoder) name(s string) error {
	if s == "" || e.names[s] {
		return fmt.Errorf("the name is empty or used twice")
	}
	e.names[s] = true
	e.text(s)
	return nil
}

// kinds lists the Go types of values by their numbers in the format; kindArray is the number of
// lists.
var kinds = []reflect.Type{
	reflect.TypeFor[uint8](), reflect.TypeFor[int8](),
	reflect.TypeFor[uint16](), reflect.TypeFor[int16](),
	reflect.TypeFor[uint32](), reflect.TypeFor[int32](), reflect.TypeFor[float32](),
	reflect.TypeFor[bool](), reflect.TypeFor[string](), kindArray: nil,
	10: reflect.TypeFor[uint64](), 11: reflect.TypeFor[int64](), 12: reflect.TypeFor[float64](),
}

const kindArray uint32 = 9

func (e *encoder) entry(entry Entry) error {
	if err := e.name(entry.Key); err != nil {
		return err
	}
	v := reflect.ValueOf(entry.Value)
	t := v.Type()
	list := t.Kind() == reflect.Slice
	if list {
		t = t.Elem()
	}
	kind := slices.Index(kinds, t)
	if kind < 0 {
		return fmt.Errorf("values of type %T are not supported", entry.Value)
	}
	if !list {
		e.number(uint32(kind))
		e.value(entry.Value)
		return nil
	}
	e.number(kindArray, uint32(kind), uint64(v.Len()))
	for i := range v.Len() {
		e.value(v.Index(i).Interface())
	}
	return nil
}

func (e *encoder) value(v any) {
	if s, ok := v.(string); ok {
		e.text(s)
		return
	}
	e.number(v)
}
