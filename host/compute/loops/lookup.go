package loops

// Parallel calls f(i) for i from 0 to n−1, possibly concurrently, and returns when all calls have
// returned.
type Parallel = func(n int, f func(i int))

// taskWork is the approximate number of elementary steps in a task: so many that the cost of
// starting the task is negligible.
const taskWork = 1 << 17

// divide splits the integers from 0 to n−1 into ranges and calls f for each. A range begins at a
// multiple of 8 and takes about taskWork elementary steps; steps is the number for each integer.
func divide(n, steps int, parallel Parallel, f func(from, to int)) {
	each := max(8, taskWork/max(1, steps)&^7)
	parallel((n+each-1)/each, func(i int) { f(i*each, min(n, (i+1)*each)) })
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
	n := len(dst) / d
	const tasks = 8
	each := (n + tasks - 1) / tasks
	parallel((n+each-1)/each, func(task int) {
		first, end := task*each, min(n, (task+1)*each)
		sums := make([]float64, (end-first)*d)
		for i, j := range index {
			row := rowWithin(j, n)
			if row < first || row >= end {
				continue
			}
			sum := sums[(row-first)*d:][:d]
			for k, v := range x[i*d:][:d] {
				sum[k] += float64(v)
			}
		}
		for i, v := range sums {
			dst[first*d+i] = float32(v)
		}
	})
}
