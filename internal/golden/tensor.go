package golden

import "github.com/cage-qat/cage/internal/goldenfile"

// Tensor is an array of numbers: flat data in row-major order, and its shape.
type Tensor = goldenfile.Tensor

// Float64s widens numbers of any type, for comparison with golden values.
func Float64s[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~float32 | ~float64](in []T) []float64 {
	out := make([]float64, len(in))
	for i, v := range in {
		out[i] = float64(v)
	}
	return out
}
