// Package lists has Map, which package slices does not have.
package lists

// Map returns f of each element of list, in order.
func Map[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
