package loops

import "math"

// The sum or extreme of a group is defined as follows: element i goes to lane i modulo 64; the two
// halves of the lanes are combined until 8 are left; and these are combined, sums in float64. A
// group of fewer than 64 elements has a lane for each element, rounded up to a power of two, but at
// least 8.

// GroupFold reduces each group of size elements of a by [Add], [Max] or [Min], or by an operation
// on integers.
func GroupFold(op Op, dst, a []float32, size int) {
	switch op {
	case Add:
		GroupSumMul(dst, a, nil, size)
	case Max, Min:
		if hasAVX2 && size >= 8 {
			groupExtreme(op, dst, a, size)
			return
		}
		plainGroupFold(op, dst, a, size)
		for i := range dst {
			dst[i] += 0 // makes zeros positive, so that the order does not matter
		}
	default:
		plainGroupFold(op, dst, a, size)
	}
}

// GroupLargest writes the largest magnitude in each group, or NaN if an element is NaN.
func GroupLargest(dst, a []float32, size int) {
	if hasAVX2 && size >= 8 {
		groupLargest(dst, a, size)
		return
	}
	for i := range dst { // compared as integers, where NaN is larger than +Inf
		most := uint32(0)
		for _, x := range a[i*size : (i+1)*size] {
			most = max(most, math.Float32bits(x)&^(1<<31))
		}
		dst[i] = math.Float32frombits(most)
	}
}

// GroupSumMul writes the dot product of a and b in each group, or the sum of a if b is nil.
func GroupSumMul(dst, a, b []float32, size int) {
	if hasAVX2 && size >= 8 {
		groupSums(dst, a, b, size)
		return
	}
	lanes := 8
	for lanes < size && lanes < block {
		lanes *= 2
	}
	for i := range dst {
		var l Lanes
		if group := a[i*size : (i+1)*size]; b == nil {
			l.Sum(group)
		} else {
			l.SumMul(group, b[i*size:(i+1)*size])
		}
		dst[i] = l.total(lanes)
	}
}

func (l *Lanes) total(n int) float32 {
	for n /= 2; n >= 8; n /= 2 {
		for i := range n {
			l[i] += l[i+n]
		}
	}
	a, b := float64(l[0])+float64(l[4]), float64(l[1])+float64(l[5])
	c, d := float64(l[2])+float64(l[6]), float64(l[3])+float64(l[7])
	return float32((a + c) + (b + d))
}

func plainGroupFold(op Op, dst, a []float32, size int) {
	for i := range dst {
		group := a[i*size : (i+1)*size]
		most := group[0]
		for _, x := range group[1:] {
			most = Two(op, most, x)
		}
		dst[i] = most
	}
}
