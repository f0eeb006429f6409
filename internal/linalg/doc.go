// Package linalg contains the dense linear algebra for optimizer refreshes: matrix products and QR
// in float64 and float32, and symmetric eigendecompositions in float64. It also contains products
// of a few rows with large weights ([FewTimes]), for generating tokens, and rotations of rows
// ([Rotate]).
//
// Factorizations are based on a blocked matrix product and a few vector operations. Each exists for
// AVX-512, for AVX2 and in plain Go. The processor determines which version is used, and the last
// bits of the results depend only on that. All work is done on the calling goroutine.
// Factorizations require finite matrices.
package linalg
