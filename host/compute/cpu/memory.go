package cpu

import (
	"fmt"
	"math"
	"reflect"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// Element returns the element type of slices that hold values with this storage.
func Element(d program.DType, at passes.Storage) reflect.Type {
	switch {
	case at == passes.BFloat16 || at == passes.Float16:
		return reflect.TypeFor[uint16]()
	case at == passes.Int8:
		return reflect.TypeFor[int8]()
	case at == passes.Uint8:
		return reflect.TypeFor[uint8]()
	case at == passes.Bits:
		return reflect.TypeFor[loops.Flags]()
	case d == program.Int:
		return reflect.TypeFor[int32]()
	case d == program.Uint:
		return reflect.TypeFor[uint32]()
	case d == program.Bool:
		return reflect.TypeFor[bool]()
	}
	return reflect.TypeFor[float32]()
}

// Check returns an error if memory is not a slice for a tensor whose elements are stored so.
func Check(memory any, t program.Type, at passes.Storage) error {
	want, length := reflect.SliceOf(Element(t.DType, at)), int(t.Size())
	if at == passes.Bits {
		length /= 8
	}
	n, v := 0, reflect.ValueOf(memory)
	if v.Kind() == reflect.Slice {
		n = v.Len()
	}
	if !v.IsValid() || v.Type() != want || n != length {
		return fmt.Errorf("is a %T of length %d, want %s in a %s of length %d",
			memory, n, t, want, length)
	}
	return nil
}

// Load converts the elements of memory from an index on to floats, as many as dst has; integers of
// 32 bits are copied bit by bit. Binary16 is not supported.
func Load(dst []float32, memory any, from int) {
	switch m := memory.(type) {
	case []float32:
		copy(dst, m[from:])
	case []uint16:
		loops.FromBFloat16(dst, m[from:])
	case []int8:
		loops.FromBytes(dst, m[from:])
	case []uint8:
		loops.FromBytes(dst, m[from:])
	case []bool:
		loops.FromBools(dst, m[from:])
	case []loops.Flags:
		loops.FromFlags(dst, m[from/8:])
	case []int32:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(m[from+i]))
		}
	case []uint32:
		for i := range dst {
			dst[i] = math.Float32frombits(m[from+i])
		}
	}
}

// Store is the inverse of [Load].
func Store(memory any, from int, a []float32) {
	switch m := memory.(type) {
	case []float32:
		copy(m[from:], a)
	case []uint16:
		loops.ToBFloat16(m[from:from+len(a)], a)
	case []int8:
		loops.ToInt8(m[from:from+len(a)], a)
	case []uint8:
		loops.ToUint8(m[from:from+len(a)], a)
	case []bool:
		loops.ToBools(m[from:from+len(a)], a)
	case []loops.Flags:
		loops.ToFlags(m[from/8:], a)
	case []int32:
		for i, x := range a {
			m[from+i] = int32(math.Float32bits(x))
		}
	case []uint32:
		for i, x := range a {
			m[from+i] = math.Float32bits(x)
		}
	}
}
