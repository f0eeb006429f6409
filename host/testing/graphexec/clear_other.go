//go:build !amd64 || !goexperiment.simd

package graphexec

// clearUpperHalves does nothing, because programs without SIMD leave no upper halves in use.
func clearUpperHalves() {}
