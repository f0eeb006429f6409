//go:build !cuda

package engine

import (
	"errors"

	"github.com/gomlx/compute"
)

// Stubs for builds without CUDA.

const builtCUDA = false

// openCUDA returns an error that explains how to get a build with CUDA.
func openCUDA(Options) (compute.Backend, error) {
	return nil, errors.New("this build has no CUDA support: that takes a C compiler and " +
		"`CGO_ENABLED=1 GOEXPERIMENT=simd go build -tags cuda -o bin/cage ./cmd/cage`; " +
		"at run time it needs an NVIDIA driver and a PJRT plugin for CUDA: " + getCUDA)
}

func runLocally(compute.Executable, int) {}

func completeProgram(compute.Builder, map[int]int, map[string]callee, int) error { return nil }

func compiledMemory(compute.Executable) Memory { return Memory{} }

func memoryLimit(compute.Backend) (int64, bool) { return 0, false }
