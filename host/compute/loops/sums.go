package loops

import "math"

// The sum or extreme of a group is defined as follows: element i goes to lane i modulo 64, halves of the lanes are combined
// until 8 are left, and these in binary64 if they are added. A group of fewer than 64 elements has as many lanes as the least
// power of two that is not below its size, or 8 lanes.

// lanesOf is the number of lanes of groups of a size.
func lanesOf(size int) int {
	n := 8
	for n < size && n < block {
		n *= 2
	}
	return n
}

// GroupFold folds each group of size elements of a by [Add], [Max] or [Min], or by an operation on integers.
func GroupFold(op Op, dst, a []float32, size int) {
	switch op {
	case Add:
		if hasAVX2 && (size%block == 0 || size == 16 || size == 32) {
			longSums(dst, a, nil, size)
			return
		}
		groupSum(dst, a, size)
	case Max, Min:
		if hasAVX2 && size%8 == 0 {
			extreme256(op, dst, a, size)
			return
		}
		groupExtreme(op, dst, a, size)
	default:
		plainGroupFold(op, dst, a, size)
	}
	done()
}

// GroupSumMul is the sum of the products of the elements of a and b in each group.
func GroupSumMul(dst, a, b []float32, size int) {
	if hasAVX2 && (size%block == 0 || size == 16 || size == 32) {
		longSums(dst, a, b, size)
		return
	}
	groupSumMul(dst, a, b, size)
	done()
}

// GroupLargest is the largest magnitude in each group; NaN if one element is NaN.
func GroupLargest(dst, a []float32, size int) {
	if hasAVX2 && size%8 == 0 {
		largest256(dst, a, size)
		return
	}
	groupLargest(dst, a, size)
	done()
}

func plainGroupSum(dst, a []float32, size int) {
	for i := range dst {
		var l Lanes
		plainSum(&l, a[i*size:(i+1)*size])
		dst[i] = l.total(lanesOf(size))
	}
}

func plainGroupSumMul(dst, a, b []float32, size int) {
	for i := range dst {
		var l Lanes
		plainSumMul(&l, a[i*size:(i+1)*size], b[i*size:(i+1)*size])
		dst[i] = l.total(lanesOf(size))
	}
}

// total adds up the first n lanes.
func (l *Lanes) total(n int) float32 {
	for n /= 2; n >= 8; n /= 2 {
		for i := range n {
			l[i] += l[i+n]
		}
	}
	return total8((*[8]float32)(l[:]))
}

func total8(l *[8]float32) float32 {
	a, b := float64(l[0])+float64(l[4]), float64(l[1])+float64(l[5])
	c, d := float64(l[2])+float64(l[6]), float64(l[3])+float64(l[7])
	return float32((a + c) + (b + d))
}

// plainGroupExtreme gives zeros the positive sign, so that the order is no matter.
func plainGroupExtreme(op Op, dst, a []float32, size int) {
	plainGroupFold(op, dst, a, size)
	for i := range dst {
		dst[i] += 0
	}
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

// plainGroupLargest compares magnitudes as integers, among which NaN is larger than +Inf.
func plainGroupLargest(dst, a []float32, size int) {
	for i := range dst {
		most := uint32(0)
		for _, x := range a[i*size : (i+1)*size] {
			most = max(most, math.Float32bits(x)&^(1<<31))
		}
		dst[i] = math.Float32frombits(most)
	}
}
