//go:build !amd64 || !goexperiment.simd

package linalg

// supported lists the kernels for this processor, the fastest first.
func supported() []kernels { return []kernels{portable} }
