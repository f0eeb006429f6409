package loops

import "math"

// key returns x as an integer with the same order. Both zeros have the same key, NaN the largest.
func key(x float32) int32 {
	if x != x {
		return math.MaxInt32
	}
	return ordered(x)
}

func ofKey(k int32) float32 {
	if k == math.MaxInt32 {
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(k ^ k>>31&math.MaxInt32))
}

// TopK marks the k largest elements of each row of d elements. Among equal elements the first ones
// count as larger, and NaN counts as larger than any number.
func TopK(dst []bool, x []float32, d, k int, parallel Parallel) {
	k = min(max(k, 0), d)
	divide(len(x)/d, 8*d, parallel, func(from, to int) {
		keys, work := make([]int32, d), make([]int32, d)
		for row := from; row < to; row++ {
			for i, v := range x[row*d : (row+1)*d] {
				keys[i] = key(v)
			}
			markLargest(dst[row*d:(row+1)*d], keys, work, k)
		}
	})
}

func markLargest(dst []bool, keys, work []int32, k int) {
	if k == 0 {
		clear(dst)
		return
	}
	copy(work, keys)
	least := quickselect(work, len(work)-k) // the smallest of the k largest
	equal := k
	for _, a := range keys {
		if a > least {
			equal--
		}
	}
	for i, a := range keys {
		dst[i] = a > least || a == least && equal > 0
		if a == least {
			equal--
		}
	}
}

// OrderStatistic writes, for each row of d elements, the element at index k in ascending order, or
// NaN if the row contains NaN.
func OrderStatistic(dst, x []float32, d, k int, parallel Parallel) {
	k = min(max(k, 0), d-1)
	divide(len(dst), 8*d, parallel, func(from, to int) {
		keys := make([]int32, d)
		for row := from; row < to; row++ {
			nan := false
			for i, v := range x[row*d : (row+1)*d] {
				keys[i] = key(v)
				nan = nan || v != v
			}
			if dst[row] = float32(math.NaN()); !nan {
				dst[row] = ofKey(quickselect(keys, k))
			}
		}
	})
}

// quickselect returns the element at index k of the ascending order (Hoare's FIND, 1961). It
// reorders a. The pivot is the median of three elements whose positions change from step to step,
// so that no input order is slow at every step.
func quickselect(a []int32, k int) int32 {
	state := uint32(len(a))
	for len(a) > 1 {
		draw := func() int32 {
			state = state*1664525 + 1013904223
			return a[uint64(state)*uint64(len(a))>>32]
		}
		p, q, r := draw(), draw(), draw()
		pivot := max(min(p, q), min(max(p, q), r))
		i, j := 0, len(a)-1
		for i <= j {
			for a[i] < pivot {
				i++
			}
			for a[j] > pivot {
				j--
			}
			if i <= j {
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		switch { // a[:j+1] ≤ pivot ≤ a[i:], and everything in between equals it
		case k <= j:
			a = a[:j+1]
		case k >= i:
			a, k = a[i:], k-i
		default:
			return pivot
		}
	}
	return a[0]
}
