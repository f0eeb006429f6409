//go:build !cuda

package engine

import (
	"errors"
)

// Stubs for builds without CUDA.

const builtCUDA = false

// openCUDA returns an error that explains how to get a build with CUDA.
func openCUDA(Options) (client, error) {
	return nil, errors.New("this build has no CUDA support: that takes a C compiler and " +
		"`CGO_ENABLED=1 GOEXPERIMENT=simd go build -tags cuda -o bin/cage ./cmd/cage`; " +
		"at run time it needs an NVIDIA driver and a PJRT plugin for CUDA: " + getCUDA)
}
