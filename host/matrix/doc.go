// Package matrix executes programs of matrix products on the processor, for updates of
// optimizers that multiply matrices: products by package linalg, what lies between them
// in tiles (package tile), a whole program on one goroutine while others execute theirs.
//
// A product that is known to be symmetric (x·xᵀ, and products of polynomials of one
// symmetric matrix) is computed to one side of the diagonal and mirrored, in about half
// the time. A compiled graph does not offer that.
//
// [Compile] takes programs whose products are of two matrices, and whose other
// operations package tile takes between one product and the next; it refuses all
// others with a [*tile.RefusedError], and the caller lowers those to a graph. Results
// are in binary32 and do not depend on the number of goroutines; their last bits are
// not those of a graph, where the order of summation is another.
//
// The room knows programs and slices. Devices, optimizers and training steps are
// elsewhere.
package matrix
