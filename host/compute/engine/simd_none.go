//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD reports whether this build lacks vector instructions that its architecture has.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// vectorInstructions returns "none": this build's Go backend uses no vector instructions.
func vectorInstructions() string { return "none" }
