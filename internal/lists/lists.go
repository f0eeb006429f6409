// Package lists has the function on slices that package slices lacks.
package lists

// Map returns f of each element of list, in order.
func Map[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
