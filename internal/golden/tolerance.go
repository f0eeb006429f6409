package golden

import (
	"fmt"
	"math"
	"slices"
)

// Tolerance says how far a value may be from the expected one:
// |got − want| ≤ Abs + Rel·|want|. The zero Tolerance asks for equality.
type Tolerance struct {
	Abs, Rel float64
}

// excess is the distance of got from want in units of what is allowed: at most
// 1 when it passes, infinite when no finite tolerance would help. NaN is close to NaN
// only, and an infinity to itself only.
func (tol Tolerance) excess(got, want float64) float64 {
	d := Distance(got, want)
	if d == 0 || math.IsInf(d, 1) {
		return d
	}
	return d / (tol.Abs + tol.Rel*math.Abs(want))
}

// Distance returns |x − y|. It is 0 if both are NaN or the same infinity, and infinite if
// only one is.
func Distance(x, y float64) float64 {
	switch {
	case x == y, math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x), math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(x - y)
}

// Largest returns the largest finite magnitude, or 0 if there is none.
func Largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

// Compare compares element by element and returns nil when every element is
// within the tolerance. Otherwise the error names the worst element, its
// distance, what was allowed, and how many elements failed.
func (tol Tolerance) Compare(got []float64, want Array) error {
	if len(got) != len(want.Data) {
		return fmt.Errorf("has %d elements, want %d (shape %v)", len(got), len(want.Data), want.Shape)
	}
	failed, worst, most := 0, -1, 1.0
	for i, w := range want.Data {
		e := tol.excess(got[i], w)
		if e <= 1 {
			continue
		}
		failed++
		if worst < 0 || e > most {
			worst, most = i, e
		}
	}
	if failed == 0 {
		return nil
	}
	w := want.Data[worst]
	return fmt.Errorf("%d of %d elements differ; worst at %v: got %v, want %v, difference %.3g, allowed %.3g",
		failed, len(got), Unravel(worst, want.Shape), got[worst], w, math.Abs(got[worst]-w), tol.Abs+tol.Rel*math.Abs(w))
}

// Unravel turns a row-major offset into one index for each axis.
func Unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis, d := range slices.Backward(shape) {
		index[axis] = offset % d
		offset /= d
	}
	return index
}
