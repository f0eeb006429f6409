//go:build !amd64 || !goexperiment.simd

package loops

// done ends a loop over vectors.
func done() {}
