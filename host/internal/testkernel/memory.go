package testkernel

import (
	"fmt"
	"math"
)

// size is the number of elements of this type in the tensor.
func (t Tensor) size(elem string) int {
	switch elem {
	case "f32":
		return len(t.Float32)
	case "bf16":
		return len(t.BFloat16)
	case "i8":
		return len(t.Int8)
	}
	return len(t.Int32)
}

// load reads the elements at a pointer's places, those that the mask has.
func (m *machine) load(args []*value, k kind) (*value, error) {
	pointer := args[0]
	k.elem = k.elem[1:]
	out := &value{kind: k}
	t := m.tensors[pointer.tensor]
	if !pointer.equal(kind{"*" + k.elem, k.dims}) || len(args) == 2 {
		return nil, fmt.Errorf("a load of %v from %v", k, pointer.kind)
	}
	for i, place := range pointer.integers {
		var f float32
		var n int32
		switch {
		case len(args) == 3 && args[1].integers[i] == 0:
			if out.isFloat() {
				f = args[2].floats[i]
			} else {
				n = args[2].integers[i]
			}
		case place < 0 || int(place) >= t.size(k.elem):
			return nil, fmt.Errorf("element %d of a tensor of %d", place, t.size(k.elem))
		case k.elem == "f32":
			f = t.Float32[place]
		case k.elem == "bf16":
			f = math.Float32frombits(uint32(t.BFloat16[place]) << 16)
		case k.elem == "i8":
			n = int32(t.Int8[place])
		default:
			n = t.Int32[place]
		}
		if out.isFloat() {
			out.floats = append(out.floats, f)
		} else {
			out.integers = append(out.integers, n)
		}
	}
	return out, nil
}

// store writes them.
func (m *machine) store(args []*value) error {
	pointer, v := args[0], args[1]
	t := m.tensors[pointer.tensor]
	if !pointer.equal(kind{"*" + v.elem, v.dims}) {
		return fmt.Errorf("a store of %v to %v", v.kind, pointer.kind)
	}
	for i, place := range pointer.integers {
		switch {
		case len(args) == 3 && args[2].integers[i] == 0:
		case place < 0 || int(place) >= t.size(v.elem):
			return fmt.Errorf("element %d of a tensor of %d", place, t.size(v.elem))
		case v.elem == "f32":
			t.Float32[place] = v.floats[i]
		case v.elem == "bf16":
			t.BFloat16[place] = uint16(math.Float32bits(v.floats[i]) >> 16)
		case v.elem == "i8":
			t.Int8[place] = int8(v.integers[i])
		default:
			t.Int32[place] = v.integers[i]
		}
	}
	return nil
}
