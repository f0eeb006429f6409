package gguf

import (
	"encoding/binary"
	"fmt"
)

// The numbers that the format gives to the types of values.
const (
	kindUint8 uint32 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// kindOf returns the type of a value that stands alone.
func kindOf(v any) (uint32, bool) {
	switch v.(type) {
	case uint8:
		return kindUint8, true
	case int8:
		return kindInt8, true
	case uint16:
		return kindUint16, true
	case int16:
		return kindInt16, true
	case uint32:
		return kindUint32, true
	case int32:
		return kindInt32, true
	case float32:
		return kindFloat32, true
	case bool:
		return kindBool, true
	case string:
		return kindString, true
	case uint64:
		return kindUint64, true
	case int64:
		return kindInt64, true
	case float64:
		return kindFloat64, true
	}
	return 0, false
}

// entry appends an entry.
func (e *encoder) entry(entry Entry) error {
	if err := e.name(entry.Key); err != nil {
		return err
	}
	if kind, ok := kindOf(entry.Value); ok {
		e.number(kind)
		e.value(entry.Value)
		return nil
	}
	switch list := entry.Value.(type) {
	case []string:
		array(e, kindString, list)
	case []int32:
		array(e, kindInt32, list)
	case []uint32:
		array(e, kindUint32, list)
	case []float32:
		array(e, kindFloat32, list)
	case []bool:
		array(e, kindBool, list)
	case []any:
		return e.anyArray(list)
	default:
		return fmt.Errorf("a value of type %T cannot be stored", entry.Value)
	}
	return nil
}

func array[T any](e *encoder, kind uint32, list []T) {
	e.number(kindArray, kind, uint64(len(list)))
	for _, v := range list {
		e.value(v)
	}
}

// anyArray appends an array of values of one type, such as the reader returns for the
// types that have no case of their own in entry.
func (e *encoder) anyArray(list []any) error {
	if len(list) == 0 {
		return fmt.Errorf("an empty array of type []any has no element type")
	}
	first, ok := kindOf(list[0])
	for _, v := range list {
		if kind, known := kindOf(v); !ok || !known || kind != first {
			return fmt.Errorf("the array holds values of the types %T and %T", list[0], v)
		}
	}
	array(e, first, list)
	return nil
}

func (e *encoder) value(v any) {
	if s, ok := v.(string); ok {
		e.text(s)
		return
	}
	e.number(v)
}

// single reads a value that stands alone.
func (d *decoder) single(kind uint32) (any, error) {
	switch kind {
	case kindUint8:
		return readNumber[uint8](d)
	case kindInt8:
		return readNumber[int8](d)
	case kindUint16:
		return readNumber[uint16](d)
	case kindInt16:
		return readNumber[int16](d)
	case kindUint32:
		return readNumber[uint32](d)
	case kindInt32:
		return readNumber[int32](d)
	case kindFloat32:
		return readNumber[float32](d)
	case kindBool:
		b, err := readNumber[uint8](d)
		if err == nil && b > 1 {
			err = d.fail("the bool %d, want 0 or 1", b)
		}
		return b == 1, err
	case kindString:
		return d.text()
	case kindUint64:
		return readNumber[uint64](d)
	case kindInt64:
		return readNumber[int64](d)
	case kindFloat64:
		return readNumber[float64](d)
	}
	return nil, d.fail("the value type %d, want 0 to 12", kind)
}

// readNumber reads a number.
func readNumber[T any](d *decoder) (v T, err error) {
	data, err := d.bytes(int64(binary.Size(v)))
	if err == nil {
		_, err = binary.Decode(data, binary.LittleEndian, &v)
	}
	return v, err
}

// value reads the type of a value and the value.
func (d *decoder) value() (any, error) {
	kind, err := readNumber[uint32](d)
	if err != nil || kind != kindArray {
		if err != nil {
			return nil, err
		}
		return d.single(kind)
	}
	element, err := readNumber[uint32](d)
	if err != nil {
		return nil, err
	}
	n, err := readNumber[uint64](d)
	if err != nil {
		return nil, err
	}
	switch element {
	case kindString:
		return elements[string](d, element, n)
	case kindInt32:
		return elements[int32](d, element, n)
	case kindUint32:
		return elements[uint32](d, element, n)
	case kindFloat32:
		return elements[float32](d, element, n)
	case kindBool:
		return elements[bool](d, element, n)
	case kindArray:
		return nil, d.fail("an array of arrays, which is not supported")
	}
	return elements[any](d, element, n)
}

// elements reads n values. The list grows with what is read: n is only a claim.
func elements[T any](d *decoder, kind uint32, n uint64) ([]T, error) {
	list := []T{}
	for range n {
		v, err := d.single(kind)
		if err != nil {
			return nil, err
		}
		list = append(list, v.(T))
	}
	return list, nil
}
