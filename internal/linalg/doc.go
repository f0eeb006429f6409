// Package linalg contains the dense linear algebra of refreshes: products and QR in float64 and
// float32, and symmetric eigendecompositions in float64. It also contains products of a few rows
// with large weights ([FewTimes]), as needed when a model computes its next token, and rotations of
// rows ([Rotate]).
//
// Factorizations are based on one product of packed blocks and a few vector operations. Everything
// exists for AVX-512, for AVX2 and in plain Go; the processor determines which one is used. The
// last bits of results depend only on that choice. A call runs on the calling goroutine. Matrices
// must be finite for a factorization.
package linalg
