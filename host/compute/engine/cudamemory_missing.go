//go:build !cuda

package engine

import "github.com/gomlx/compute"

// compiledMemory has nothing to tell in a build without CUDA.
func compiledMemory(compute.Executable) Memory { return Memory{} }

// memoryLimit is not known in a build without CUDA.
func memoryLimit(compute.Backend) (int64, bool) { return 0, false }

func moveToHost(compute.Backend, compute.Buffer, int) error {
	return &PinnedError{"only GPUs can"}
}
