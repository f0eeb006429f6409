package loops

import "slices"

// Parallel calls f(i) for i from 0 to n−1, possibly concurrently, and returns when all calls have
// returned.
type Parallel = func(n int, f func(i int))

// InOrder is a [Parallel] that calls f one after the other.
func InOrder(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// InParts calls f for ranges of the integers from 0 to n−1, each of the given length but the last.
func InParts(n, each int, parallel Parallel, f func(from, to int)) {
	parallel((n+each-1)/each, func(i int) { f(i*each, min(n, (i+1)*each)) })
}

// taskWork is the approximate number of elementary steps in a task: so many that the cost of
// starting the task is negligible.
const taskWork = 1 << 17

// divide splits the integers from 0 to n−1 into ranges and calls f for each. A range begins at a
// multiple of 8 and takes about taskWork elementary steps; steps is the number for each integer.
func divide(n, steps int, parallel Parallel, f func(from, to int)) {
	InParts(n, max(8, taskWork/max(1, steps)&^7), parallel, f)
}

func rowWithin(index int32, n int) int { return min(max(int(index), 0), n-1) }

// Lookup copies the rows with the given indices from a table with d elements in a row.
func Lookup(dst []float32, index []int32, table []float32, d int, parallel Parallel) {
	n := len(table) / d
	divide(len(index), d, parallel, func(from, to int) {
		if d == 1 {
			for i := from; i < to; i++ {
				dst[i] = table[rowWithin(index[i], n)]
			}
			return
		}
		for i := from; i < to; i++ {
			row := rowWithin(index[i], n) * d
			copy(dst[i*d:(i+1)*d], table[row:row+d])
		}
	})
}

// ScatterAdd sets row i of dst to the sum of the rows of x with index i; rows have d elements. One
// task computes each sum, in the order of x and in float64.
func ScatterAdd(dst []float32, index []int32, x []float32, d int, parallel Parallel) {
	const tasks = 8
	each := (len(dst)/d + tasks - 1) / tasks * d
	parallel(tasks, func(i int) { clear(dst[min(i*each, len(dst)):min((i+1)*each, len(dst))]) })
	AddRows(dst, index, x, d, parallel)
}

// AddRows is like ScatterAdd, but adds the sums to dst.
func AddRows(dst []float32, index []int32, x []float32, d int, parallel Parallel) {
	rows := make([]int32, len(index)) // of x, by their index
	for i := range rows {
		rows[i] = int32(i)
	}
	n := len(dst) / d
	slices.SortStableFunc(rows, func(a, b int32) int {
		return rowWithin(index[a], n) - rowWithin(index[b], n)
	})
	var first []int // of each sum
	for i, row := range rows {
		if i == 0 || rowWithin(index[row], n) != rowWithin(index[rows[i-1]], n) {
			first = append(first, i)
		}
	}
	divide(len(first), max(1, len(rows)/max(1, len(first)))*d, parallel, func(from, to int) {
		sum := make([]float64, d)
		for i := from; i < to; i++ {
			end := len(rows)
			if i+1 < len(first) {
				end = first[i+1]
			}
			clear(sum)
			for _, row := range rows[first[i]:end] {
				for k, v := range x[int(row)*d:][:d] {
					sum[k] += float64(v)
				}
			}
			at := dst[rowWithin(index[rows[first[i]]], n)*d:][:d]
			for k, v := range sum {
				at[k] += float32(v)
			}
		}
	})
}
