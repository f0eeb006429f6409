// Package linalg holds the dense linear algebra of refreshes: products and QR in
// float64 and float32, and symmetric eigendecompositions in float64, fast enough for
// refresh programs; and products of few rows with large weights ([FewTimes]), as a
// model computes its next token.
//
// Factorizations rest on one product of packed blocks and a few operations on vectors. All
// exists for AVX-512, for AVX2 and in plain Go; the processor decides. The last
// bits of results depend on that choice and on nothing else. A call runs on the
// goroutine that makes it. Matrices must be finite for a factorization.
package linalg
