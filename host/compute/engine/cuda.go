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
	if err := setXLAEnvironment(plugin, opts.Cache); err != nil {
		return nil, err
	}
	backend, err := xla.New(plugin + "," + clientOptions(opts))
	switch {
	case err != nil && strings.Contains(err.Error(), "No visible GPU"):
		return nil, fmt.Errorf("PJRT plugin %s sees no GPU: it needs an NVIDIA GPU, its driver (`nvidia-smi` lists both), and a CUDA_VISIBLE_DEVICES that does not hide it: %w", plugin, err)
	case err != nil:
		return nil, fmt.Errorf("PJRT plugin %s: %w", plugin, err)
	}
	return backend, nil
}

// setXLAEnvironment tells XLA where the toolkit is, as JAX does when it loads the plugin, and where its caches are. go-xla has a check of its own
// that expects another layout than JAX's and warns of it at length.
func setXLAEnvironment(plugin, cache string) error {
	const variable, check = "XLA_FLAGS", "GOPJRT_CUDA_CHECKS"
	caches, err := cacheFlags(cache)
	if err != nil {
		return err
	}
	if flags := strings.TrimSpace(xlaFlags(os.Getenv(variable), toolkitIn(plugin)) + caches); flags != "" {
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
