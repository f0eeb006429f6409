//go:build !amd64 || !goexperiment.simd

package linalg

// supported lists the kernels that run here, the fastest first.
func supported() []kernels { return []kernels{portable} }
