package golden

import (
	"fmt"
	"slices"
)

// Array is an array of numbers: flat data in row-major order, and its shape.
// A single number has an empty shape.
type Array struct {
	Shape []int
	Data  []float64
}

// Rank returns the number of axes: 0 for a number, 1 for a list, 2 for a matrix.
func (x Array) Rank() int { return len(x.Shape) }

// Len returns the length of the first axis, or 1 for a single number.
func (x Array) Len() int {
	if x.Rank() == 0 {
		return 1
	}
	return x.Shape[0]
}

// Row returns the i-th slice along the first axis; it shares memory with x.
// For gradients of shape [steps, rows, columns], Row(t) is the matrix of step t.
func (x Array) Row(i int) Array {
	size := len(x.Data) / x.Shape[0]
	return Array{Shape: x.Shape[1:], Data: x.Data[i*size : (i+1)*size : (i+1)*size]}
}

// Float32 returns the data rounded to float32.
func (x Array) Float32() []float32 {
	out := make([]float32, len(x.Data))
	for i, v := range x.Data {
		out[i] = float32(v)
	}
	return out
}

// Clone returns a copy that shares no memory with x.
func (x Array) Clone() Array {
	return Array{Shape: slices.Clone(x.Shape), Data: slices.Clone(x.Data)}
}

// NewArray flattens a number or an arbitrarily nested list of numbers.
func NewArray(v any) (Array, error) {
	list, ok := v.([]any)
	if !ok {
		x, err := Float(v)
		if err != nil {
			return Array{}, err
		}
		return Array{Shape: []int{}, Data: []float64{x}}, nil
	}
	out := Array{Shape: []int{len(list)}}
	for i, item := range list {
		sub, err := NewArray(item)
		if err != nil {
			return Array{}, fmt.Errorf("[%d]: %w", i, err)
		}
		if i == 0 {
			out.Shape = append(out.Shape, sub.Shape...)
		} else if !slices.Equal(out.Shape[1:], sub.Shape) {
			return Array{}, fmt.Errorf("[%d]: has shape %v, those before it have %v", i, sub.Shape, out.Shape[1:])
		}
		out.Data = append(out.Data, sub.Data...)
	}
	return out, nil
}
