// Package lists has functions on slices that package slices lacks.
package lists

// Map returns f of each element of list, in order.
func Map[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// Filter returns the elements of list that keep accepts, in order; nil if there are none.
func Filter[E any](list []E, keep func(E) bool) []E {
	var out []E
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
