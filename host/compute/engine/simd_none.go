//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD reports whether this executable was built without the vector instructions that its processor architecture
// has.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// FloatLanes returns how many float32 numbers fit a vector of the Go backend: 1, as this build has no vector
// instructions.
func FloatLanes() int { return 1 }

// vectorInstructions returns "none": the Go backend of this build has no vector instructions.
func vectorInstructions() string { return "none" }
