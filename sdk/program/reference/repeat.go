package reference

import "slices"

// repeated is an operand of an elementwise operation, row by row as the operation sees
// it: repeated along the axes where it has one element.
type repeated[T any] struct {
	data    []T
	shape   []int // of the result, less the last axis
	strides []int // 0 along an axis that is repeated
	whole   bool  // the rows are in data; otherwise each repeats one element
	row     []T   // for these
}

// rows is the number of rows of operands of the given shapes, as a result of shape out
// has them, and their length. Where nothing is repeated there is only one.
func rows(out []int, shapes ...[]int) (count, length int) {
	count, length = 1, 1
	flat := true
	for _, s := range shapes {
		flat = flat && slices.Equal(s, out)
	}
	for i, d := range out {
		if i == len(out)-1 || flat {
			length *= d
		} else {
			count *= d
		}
	}
	return count, length
}

// repeat sees data of the given shape as rows of a result of shape out.
func repeat[T any](p *pool[T], data []T, shape, out []int, length int) *repeated[T] {
	r := &repeated[T]{data: data, whole: len(data) > 0}
	if len(out) == 0 || length > out[len(out)-1] { // the only row
		return r
	}
	last := len(out) - 1
	r.shape, r.strides = out[:last], make([]int, last)
	if len(shape) > 0 {
		for i, stride := range rowMajor(shape)[:last] {
			if shape[i] != 1 {
				r.strides[i] = stride
			}
		}
	}
	if r.whole = len(shape) > 0 && shape[last] == out[last]; !r.whole {
		r.row = p.take(length)
	}
	return r
}

// at is row i, of length elements.
func (r *repeated[T]) at(i, length int) []T {
	from := 0
	for axis := len(r.shape) - 1; axis >= 0; axis-- {
		from += i % r.shape[axis] * r.strides[axis]
		i /= r.shape[axis]
	}
	if r.whole {
		return r.data[from : from+length]
	}
	for k := range r.row {
		r.row[k] = r.data[from]
	}
	return r.row
}
