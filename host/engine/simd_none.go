//go:build !(goexperiment.simd && amd64)

package engine

// vectorInstructions says that the Go backend of this build has none.
func vectorInstructions() string { return "none" }
