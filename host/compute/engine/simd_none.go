//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD reports whether this build lacks the vector instructions of its architecture.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// vectorInstructions returns "none": the Go backend of this build has no vector instructions.
func vectorInstructions() string { return "none" }
