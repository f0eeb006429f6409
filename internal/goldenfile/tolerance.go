package goldenfile

import (
	"fmt"
	"math"
)

// Tolerance says how far a value may be from the expected one:
// |got − want| ≤ Abs + Rel·|want|. The zero Tolerance asks for equality.
type Tolerance struct {
	Abs, Rel float64
}

// Close reports whether got is within the tolerance of want. NaN is close to
// NaN only, and an infinity to itself only.
func (tol Tolerance) Close(got, want float64) bool {
	return tol.excess(got, want) <= 1
}

// excess is the distance of got from want in units of what is allowed: at most
// 1 when it passes, infinite when no finite tolerance would help.
func (tol Tolerance) excess(got, want float64) float64 {
	switch {
	case got == want, math.IsNaN(got) && math.IsNaN(want):
		return 0
	case math.IsNaN(got), math.IsNaN(want), math.IsInf(got, 0), math.IsInf(want, 0):
		return math.Inf(1)
	}
	allowed := tol.Abs + tol.Rel*math.Abs(want)
	if allowed == 0 {
		return math.Inf(1)
	}
	return math.Abs(got-want) / allowed
}

// Compare compares element by element and returns nil when every element is
// within the tolerance. Otherwise the error names the worst element, its
// distance, what was allowed, and how many elements failed.
func (tol Tolerance) Compare(got []float64, want Tensor) error {
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
		failed, len(got), unravel(worst, want.Shape), got[worst], w, math.Abs(got[worst]-w), tol.Abs+tol.Rel*math.Abs(w))
}

// unravel turns a flat offset into one index per axis.
func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		index[axis] = offset % shape[axis]
		offset /= shape[axis]
	}
	return index
}
