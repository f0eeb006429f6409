//go:build !amd64 || !goexperiment.simd

package vecmath

// supported lists the kernels that run here, the fastest first.
func supported() []kernels { return []kernels{portable} }
