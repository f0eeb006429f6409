package gguf

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
)

// kinds are the Go types of values, by their numbers in the format.
var kinds = []reflect.Type{
	reflect.TypeFor[uint8](), reflect.TypeFor[int8](),
	reflect.TypeFor[uint16](), reflect.TypeFor[int16](),
	reflect.TypeFor[uint32](), reflect.TypeFor[int32](), reflect.TypeFor[float32](),
	kindBool: reflect.TypeFor[bool](), kindString: reflect.TypeFor[string](), kindArray: nil,
	10: reflect.TypeFor[uint64](), 11: reflect.TypeFor[int64](), 12: reflect.TypeFor[float64](),
}

const (
	kindBool uint32 = iota + 7
	kindString
	kindArray
)

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
		return fmt.Errorf("a value of type %T cannot be stored", entry.Value)
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

func (d *decoder) value() (any, error) {
	kind, err := readNumber[uint32](d)
	if err != nil {
		return nil, err
	}
	if kind != kindArray {
		v, err := d.single(kind)
		if err != nil {
			return nil, err
		}
		return v.Interface(), nil
	}
	element, err := readNumber[uint32](d)
	if err != nil {
		return nil, err
	}
	n, err := readNumber[uint64](d)
	if err != nil {
		return nil, err
	}
	if element == kindArray {
		return nil, d.fail("an array of arrays, which is not supported")
	}
	if int(element) >= len(kinds) {
		return nil, d.fail("the value type %d, want 0 to %d", element, len(kinds)-1)
	}
	list := reflect.MakeSlice(reflect.SliceOf(kinds[element]), 0, 0)
	for range n { // the list grows as it is read: n is untrusted
		v, err := d.single(element)
		if err != nil {
			return nil, err
		}
		list = reflect.Append(list, v)
	}
	return list.Interface(), nil
}

func (d *decoder) single(kind uint32) (v reflect.Value, err error) {
	if int(kind) >= len(kinds) {
		return v, d.fail("the value type %d, want 0 to %d", kind, len(kinds)-1)
	}
	v = reflect.New(kinds[kind]).Elem()
	switch kind {
	case kindString:
		s, err := d.text()
		v.SetString(s)
		return v, err
	case kindBool:
		b, err := readNumber[uint8](d)
		if err == nil && b > 1 {
			err = d.fail("the bool %d, want 0 or 1", b)
		}
		v.SetBool(b == 1)
		return v, err
	}
	data, err := d.bytes(int64(kinds[kind].Size()))
	if err == nil {
		_, err = binary.Decode(data, binary.LittleEndian, v.Addr().Interface())
	}
	return v, err
}

func readNumber[T any](d *decoder) (v T, err error) {
	data, err := d.bytes(int64(binary.Size(v)))
	if err == nil {
		_, err = binary.Decode(data, binary.LittleEndian, &v)
	}
	return v, err
}
