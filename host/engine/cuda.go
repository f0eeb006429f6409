//go:build cuda

package engine

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
)

const builtCUDA = true

// openCUDA loads the PJRT plugin and opens XLA on it.
func openCUDA(opts Options) (compute.Backend, error) {
	plugin := opts.Plugin
	if plugin == "" {
		var err error
		if plugin, err = FindCUDAPlugin(); err != nil {
			return nil, err
		}
	}
	// Memory is taken as it is needed, so that other programs can share the GPU.
	config := fmt.Sprintf("%s,tf32=%t,preallocate=false", plugin, opts.TF32)
	backend, err := xla.New(config)
	if err != nil {
		return nil, fmt.Errorf("PJRT plugin %s: %w", plugin, err)
	}
	return backend, nil
}
