// Package lists makes lists, where package slices has no function for it.
package lists

// Map returns f of each element of list, in order.
func Map[A, B any](list []A, f func(A) B) []B {
	return Make(len(list), func(i int) B { return f(list[i]) })
}

// Make returns f of 0, 1, …, n-1.
func Make[T any](n int, f func(i int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Range returns 0, 1, …, n-1.
func Range(n int) []int { return Make(n, func(i int) int { return i }) }
