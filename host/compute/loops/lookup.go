package loops

// Parallel calls f with 0 to n−1, possibly concurrently, and returns when all calls have
// returned.
type Parallel = func(n int, f func(i int))

// taskWork is the approximate number of elementary steps in a task: enough to make the cost of
// starting it negligible.
const taskWork = 1 << 17

// divide calls f for ranges of the integers from 0 to n−1, each worth about taskWork steps, where
// one integer takes the given steps. Ranges begin at multiples of 8.
func divide(n, steps int, parallel Parallel, f func(from, to int)) {
	each := max(8, taskWork/max(1, steps)&^7)
	parallel((n+each-1)/each, func(i int) { f(i*each, min(n, (i+1)*each)) })
}

// rowWithin returns an index clamped to the rows of a table with n rows.
func rowWithin(index int32, n int) int { return min(max(int(index), 0), n-1) }

// Lookup copies the rows of a table, of d elements each, that have the given indices.
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

// ScatterAdd sums the rows of x, of d elements each, by their index: row i of dst is the sum of the
// rows with index i. Each sum is computed by one task, in the order of x and in float64.
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
