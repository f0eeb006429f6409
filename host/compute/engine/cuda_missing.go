//go:build !cuda

package engine

import (
	"errors"

	"github.com/gomlx/compute"
)

const builtCUDA = false

// openCUDA explains how to get a build that can.
func openCUDA(Options) (compute.Backend, error) {
	return nil, errors.New("this build has no CUDA support: that takes a C compiler and " +
		"`CGO_ENABLED=1 GOEXPERIMENT=simd go build -tags cuda -o bin/cage ./cmd/cage`; at run time it needs an NVIDIA driver " +
		"and a PJRT plugin for CUDA: " + getCUDA)
}

// runLocally has nothing to do in a build without CUDA.
func runLocally(compute.Executable, int) error { return nil }

// replaceCalls has nothing to replace in a build without CUDA.
func replaceCalls(compute.Builder, map[string]callee) error { return nil }
