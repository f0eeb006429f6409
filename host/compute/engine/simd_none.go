//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD reports whether this build lacks vector instructions that its architecture has.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// vectorInstructions returns "none", because the Go backend of this build uses no vector
// instructions.
func vectorInstructions() string { return "none" }
