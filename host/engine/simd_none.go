//go:build !(goexperiment.simd && amd64)

package engine

import "runtime"

// LacksSIMD tells whether this executable was built without vector instructions that its processor's kind has.
func LacksSIMD() bool { return runtime.GOARCH == "amd64" }

// vectorInstructions says that the Go backend of this build has none.
func vectorInstructions() string { return "none" }
