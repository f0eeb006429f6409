//go:build cuda

package engine

import (
	"fmt"
	"os"
	"strings"

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
	if err := checkPluginPath(plugin); err != nil {
		return nil, err
	}
	if err := setXLAEnvironment(plugin); err != nil {
		return nil, err
	}
	// Memory is taken as it is needed, so that other programs can share the GPU. TF32 is said either way: go-xla's
	// default is to use it.
	config := fmt.Sprintf("%s,tf32=%t,preallocate=false", plugin, opts.TF32)
	backend, err := xla.New(config)
	switch {
	case err != nil && strings.Contains(err.Error(), "No visible GPU"):
		return nil, fmt.Errorf("PJRT plugin %s sees no GPU: it needs an NVIDIA GPU, its driver (`nvidia-smi` lists both), and a CUDA_VISIBLE_DEVICES that does not hide it: %w", plugin, err)
	case err != nil:
		return nil, fmt.Errorf("PJRT plugin %s: %w", plugin, err)
	}
	return backend, nil
}

// setXLAEnvironment tells XLA where the toolkit is, as JAX does when it loads the plugin. go-xla has a check of its own
// that expects another layout than JAX's and warns of it at length.
func setXLAEnvironment(plugin string) error {
	const variable, check = "XLA_FLAGS", "GOPJRT_CUDA_CHECKS"
	if flags := xlaFlags(os.Getenv(variable), toolkitIn(plugin)); flags != "" {
		if err := os.Setenv(variable, flags); err != nil {
			return fmt.Errorf("setting %s: %w", variable, err)
		}
	}
	if os.Getenv(check) == "" {
		if err := os.Setenv(check, "0"); err != nil {
			return fmt.Errorf("setting %s: %w", check, err)
		}
	}
	return nil
}
