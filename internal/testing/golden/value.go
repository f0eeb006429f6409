package golden

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// toFloat converts a value to a number. "NaN", "Inf" and "-Inf" are numbers, and null is NaN.
func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case nil:
		return math.NaN(), nil
	case json.Number:
		return v.Float64()
	case string:
		if x, ok := nonFinite(v); ok {
			return x, nil
		}
	}
	return 0, fmt.Errorf("is %s, want a number", jsonType(v))
}

// toInt converts a value to an integer.
func toInt(v any) (int, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("is %s, want an integer", jsonType(v))
	}
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	x, err := n.Float64()
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("is %s, want an integer", n)
	}
	return int(x), nil
}

// toBool converts a value to a bool.
func toBool(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("is %s, want true or false", jsonType(v))
	}
	return b, nil
}

// toText converts a value to a string. It returns a number as written, because some settings can be
// either (a mode is "full" or 128).
func toText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("is %s, want a string", jsonType(v))
}

// nonFinite parses the strings for numbers that JSON cannot represent.
func nonFinite(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.NaN(), true
	case "Inf":
		return math.Inf(1), true
	case "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

// jsonType names the JSON type of v for error messages.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null or absent"
	case bool:
		return "a truth value"
	case json.Number:
		return "the number " + v.String()
	case string:
		return fmt.Sprintf("the string %q", v)
	case []any:
		return "a list"
	}
	return "an object"
}

// Array is an array of numbers in row-major order with its shape, which is empty for a scalar.
type Array struct {
	Shape []int
	Data  []float64
}

// Rank returns the number of axes: 0 for a scalar, 1 for a list, 2 for a matrix.
func (x Array) Rank() int { return len(x.Shape) }

// Len returns the length of the first axis, or 1 for a scalar.
func (x Array) Len() int {
	if x.Rank() == 0 {
		return 1
	}
	return x.Shape[0]
}

// Row returns the i-th slice along the first axis, which shares memory with x. For gradients of
// shape [steps, rows, columns], Row(t) is the gradient at step t.
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

// toArray flattens a number or a nested list of numbers.
func toArray(v any) (Array, error) {
	list, ok := v.([]any)
	if !ok {
		x, err := toFloat(v)
		if err != nil {
			return Array{}, err
		}
		return Array{Shape: []int{}, Data: []float64{x}}, nil
	}
	out := Array{Shape: []int{len(list)}}
	for i, item := range list {
		sub, err := toArray(item)
		if err != nil {
			return Array{}, fmt.Errorf("[%d]: %w", i, err)
		}
		if i == 0 {
			out.Shape = append(out.Shape, sub.Shape...)
		} else if !slices.Equal(out.Shape[1:], sub.Shape) {
			return Array{}, fmt.Errorf("[%d]: has shape %v, want %v like those before", i, sub.Shape,
				out.Shape[1:])
		}
		out.Data = append(out.Data, sub.Data...)
	}
	return out, nil
}

// Tolerance is an allowed deviation: got passes if |got − want| ≤ Abs + Rel·|want|. The zero
// Tolerance requires equality.
type Tolerance struct {
	Abs, Rel float64
}

// excess returns the deviation of got from want, relative to the allowed one. It is at most 1 if
// got passes, and infinite if no finite tolerance would suffice. NaN is close only to NaN, and an
// infinity only to itself.
func (tol Tolerance) excess(got, want float64) float64 {
	d := distance(got, want)
	if d == 0 || math.IsInf(d, 1) {
		return d
	}
	return d / (tol.Abs + tol.Rel*math.Abs(want))
}

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

// Compare compares all elements and returns nil if each is within the tolerance. Otherwise the
// error names the worst element, its difference, the allowed difference and the number of elements
// that failed.
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
	return fmt.Errorf("%d of %d elements differ; worst at %v: got %v, want %v, difference %.3g, "+
		"allowed %.3g",
		failed, len(got), unravel(worst, want.Shape), got[worst], w, math.Abs(got[worst]-w),
		tol.Abs+tol.Rel*math.Abs(w))
}

// unravel converts a row-major offset to one index per axis.
func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis, d := range slices.Backward(shape) {
		index[axis] = offset % d
		offset /= d
	}
	return index
}
