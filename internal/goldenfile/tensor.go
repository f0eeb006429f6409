package goldenfile

import (
	"fmt"
	"slices"
)

// Tensor is an array of numbers: flat data in row-major order, and its shape.
// A single number has an empty shape.
type Tensor struct {
	Shape []int
	Data  []float64
}

// Rank is the number of axes: 0 for a number, 1 for a list, 2 for a matrix.
func (x Tensor) Rank() int { return len(x.Shape) }

// Len is the length of the first axis, 1 for a single number.
func (x Tensor) Len() int {
	if x.Rank() == 0 {
		return 1
	}
	return x.Shape[0]
}

// Row returns the i-th slice along the first axis; it shares memory with x.
// For gradients of shape [steps, rows, columns], Row(t) is the matrix of step t.
func (x Tensor) Row(i int) Tensor {
	size := len(x.Data) / x.Shape[0]
	return Tensor{Shape: x.Shape[1:], Data: x.Data[i*size : (i+1)*size : (i+1)*size]}
}

// At returns the element at the given indices, one per axis.
func (x Tensor) At(index ...int) float64 {
	if len(index) != x.Rank() {
		panic(fmt.Sprintf("goldenfile: %d indices for shape %v", len(index), x.Shape))
	}
	offset := 0
	for axis, i := range index {
		offset = offset*x.Shape[axis] + i
	}
	return x.Data[offset]
}

// Float32 returns the data rounded to float32.
func (x Tensor) Float32() []float32 {
	out := make([]float32, len(x.Data))
	for i, v := range x.Data {
		out[i] = float32(v)
	}
	return out
}

// Clone returns a copy that shares no memory with x.
func (x Tensor) Clone() Tensor {
	return Tensor{Shape: slices.Clone(x.Shape), Data: slices.Clone(x.Data)}
}

// NewTensor flattens a number or an arbitrarily nested list of numbers.
func NewTensor(v any) (Tensor, error) {
	list, ok := v.([]any)
	if !ok {
		x, err := Float(v)
		if err != nil {
			return Tensor{}, err
		}
		return Tensor{Shape: []int{}, Data: []float64{x}}, nil
	}
	out := Tensor{Shape: []int{len(list)}}
	for i, item := range list {
		sub, err := NewTensor(item)
		if err != nil {
			return Tensor{}, fmt.Errorf("[%d]: %w", i, err)
		}
		if i == 0 {
			out.Shape = append(out.Shape, sub.Shape...)
		} else if !slices.Equal(out.Shape[1:], sub.Shape) {
			return Tensor{}, fmt.Errorf("[%d]: has shape %v, those before it have %v", i, sub.Shape, out.Shape[1:])
		}
		out.Data = append(out.Data, sub.Data...)
	}
	return out, nil
}
