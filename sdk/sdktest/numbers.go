package sdktest

import (
	"math"
	"slices"
)

// distance returns |x − y|. It is 0 if both are NaN or the same infinity, and infinite if
// only one is.
func distance(x, y float64) float64 {
	switch {
	case x == y, math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x), math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(x - y)
}

// largest returns the largest finite magnitude, or 0 if there is none.
func largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

// unravel turns a row-major offset into one index for each axis.
func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis, d := range slices.Backward(shape) {
		index[axis] = offset % d
		offset /= d
	}
	return index
}
