//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD tells whether this executable was built without vector instructions that its processor's kind has.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// FloatLanes is how many float32 numbers a vector of the Go backend has: 1, as this build has none.
func FloatLanes() int { return 1 }

// vectorInstructions says that the Go backend of this build has none.
func vectorInstructions() string { return "none" }
