package loops

import (
	"cmp"
	"math"
	"slices"
)

// Nearest writes, for each row of x, the index of the nearest row of a table; rows have d elements.
// Ties go to the lowest index. If no distance is finite, for example because the row is not finite,
// the index is 0.
func Nearest(dst []int32, x, table []float32, d int, parallel Parallel) {
	if d == 1 {
		const each = 16 // steps of a search, about
		t := newSorted(table)
		divide(len(x), each, parallel, func(from, to int) {
			t.find(dst[from:to], x[from:to])
		})
		return
	}
	v := newVectors(table, d)
	divide(len(dst), len(table), parallel, func(from, to int) { v.find(dst[from:to], x[from*d:to*d]) })
}

// sorted is a table of scalars, sorted for a binary search.
type sorted struct {
	index []int32   // of each scalar, in the table
	above []float32 // the largest float that belongs to the lower of two adjacent scalars
	// bounds holds above as ordered integers, padded with the largest integer to length 2ᵏ − 1.
	bounds []int32
}

func newSorted(table []float32) *sorted {
	var order []int32
	for i, v := range table {
		if isNumber(v) {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(i, j int32) int { return cmp.Compare(table[i], table[j]) })
	order = slices.CompactFunc(order, func(i, j int32) bool { return table[i] == table[j] })
	if len(order) == 0 {
		order = []int32{0}
	}
	s := &sorted{index: order}
	for size := 1; len(s.bounds) < len(order)-1; size *= 2 {
		s.bounds = slices.Repeat([]int32{math.MaxInt32}, 2*size-1)
	}
	for i := range order[1:] {
		lower, upper := order[i], order[i+1]
		s.above = append(s.above, bound(table[lower], table[upper], lower < upper))
		s.bounds[i] = ordered(s.above[i])
	}
	return s
}

// bound returns the largest float32 that is nearer to a than to b, for a < b. The midpoint belongs
// to the one with the lower index.
func bound(a, b float32, lowerFirst bool) float32 {
	half := (float64(a) + float64(b)) / 2
	at := float32(half)
	if float64(at) > half || float64(at) == half && !lowerFirst {
		at = math.Nextafter32(at, float32(math.Inf(-1)))
	}
	return at
}

func isNumber(x float32) bool { return x-x == 0 }

// maxCounted is the largest number of bounds that are all compared rather than searched.
const maxCounted = 32

// find writes the index of the scalar nearest to each number. Its position in sorted order is the
// number of bounds below the number.
func (s *sorted) find(dst []int32, x []float32) {
	if len(s.above) > maxCounted {
		for i, v := range x {
			dst[i] = s.search(v)
		}
		return
	}
	var counts, above [256]float32 // the number of bounds that are not below
	for len(x) > 0 {
		n := min(len(x), len(counts))
		clear(counts[:n])
		for _, v := range s.above {
			BinaryS(Le, above[:n], x[:n], v)
			Binary(Add, counts[:n], counts[:n], above[:n])
		}
		for i, v := range x[:n] {
			if dst[i] = s.index[len(s.above)-int(counts[i])]; !isNumber(v) {
				dst[i] = 0
			}
		}
		dst, x = dst[n:], x[n:]
	}
}

func (s *sorted) search(x float32) int32 {
	if !isNumber(x) {
		return 0
	}
	key, at := int64(ordered(x)), 0
	for half := (len(s.bounds) + 1) >> 1; half > 0; half >>= 1 {
		// branch-free, because branches would often be mispredicted
		at += half & int((int64(s.bounds[at+half-1])-key)>>63)
	}
	return s.index[at]
}

// ordered maps floats to integers in the same order; −0 and 0 have the same integer.
func ordered(x float32) int32 {
	bits := int32(math.Float32bits(x + 0))
	return bits ^ bits>>31&math.MaxInt32
}

// vectors is a table of vectors, transposed to compute the distances of x to all rows at once.
type vectors struct {
	d, n    int
	columns []float32 // [d, n]; +Inf in rows that are not finite, whose distances are then infinite
}

func newVectors(table []float32, d int) *vectors {
	n := len(table) / d
	v := &vectors{d, n, make([]float32, d*n)}
	Transpose(v.columns, n, table, d, n, d, nil)
	for i := range n {
		if slices.ContainsFunc(table[i*d:(i+1)*d], func(x float32) bool { return !isNumber(x) }) {
			for k := range d {
				v.columns[k*n+i] = float32(math.Inf(1))
			}
		}
	}
	return v
}

func (v *vectors) find(dst []int32, x []float32) {
	sums := make([]float32, v.n)
	for i := range dst {
		clear(sums)
		finite := true
		for k, e := range x[i*v.d : (i+1)*v.d] {
			finite = finite && isNumber(e)
			// Subtracting first is more accurate than |t|² − 2x·t, which cancels if x and t are long.
			column := v.columns[k*v.n:]
			for i := addSquares(sums, column, e); i < v.n; i++ {
				difference := column[i] - e
				sums[i] += float32(difference * difference)
			}
		}
		if finite {
			var least [1]float32
			GroupFold(Min, least[:], sums, v.n)
			dst[i] = int32(slices.Index(sums, least[0]))
		} else {
			dst[i] = 0
		}
	}
}
