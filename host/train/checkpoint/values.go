package checkpoint

import (
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
)

// Tensor returns a tensor of a state, stored in a type that represents its elements exactly. read
// is called for them when the tensor is written.
func Tensor(name string, dims []int, storage sdk.Storage,
	read func() ([]float32, error)) safetensors.Tensor {
	switch storage {
	case sdk.StoreInt8:
		return narrowed(name, dims, read, func(v float32) int8 { return int8(v) })
	case sdk.StoreUint8:
		return narrowed(name, dims, read, func(v float32) uint8 { return uint8(v) })
	case sdk.StoreBFloat16:
		bits := narrowed(name, dims, read, halffloat.ToBFloat16)
		bits.DType = safetensors.BF16
		return bits
	}
	return safetensors.Lazy(name, dims, read)
}

func narrowed[T safetensors.Element](name string, dims []int, read func() ([]float32, error),
	element func(float32) T) safetensors.Tensor {
	return safetensors.Lazy(name, dims, func() ([]T, error) {
		values, err := read()
		return lists.Map(values, element), err
	})
}

// Floats returns the elements of a tensor of [Tensor].
func Floats(t safetensors.Tensor) ([]float32, error) {
	switch t.DType {
	case safetensors.I8:
		return widened[int8](t)
	case safetensors.U8:
		return widened[uint8](t)
	}
	return safetensors.Floats(t)
}

func widened[T int8 | uint8](t safetensors.Tensor) ([]float32, error) {
	values, err := safetensors.Values[T](t)
	return lists.Map(values, func(v T) float32 { return float32(v) }), err
}
