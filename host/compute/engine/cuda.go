//go:build cuda

package engine

import (
	"fmt"
	"os"
	"strings"
)

const builtCUDA = true

// openCUDA loads the PJRT plugin and opens an XLA client on it.
func openCUDA(opts Options) (client, error) {
	plugin, err := FindCUDAPlugin()
	if err != nil {
		return nil, err
	}
	if err := checkPluginFile(plugin); err != nil {
		return nil, err
	}
	if err := setXLAEnvironment(plugin, opts.Cache); err != nil {
		return nil, err
	}
	if releaseOf(plugin) > 0 {
		visible, limited := os.LookupEnv("CUDA_VISIBLE_DEVICES")
		if err := askDriver().check(plugin, visible, limited); err != nil {
			return nil, err
		}
		warn := opts.Warn
		if warn == nil {
			warn = func(string, ...any) {}
		}
		if err := loadLibraries(plugin, opts.Count, loadLibrary, warn); err != nil {
			return nil, err
		}
	}
	if err := loadLibrary(plugin); err != nil { // go-xla then finds it loaded
		return nil, fmt.Errorf("PJRT plugin %s does not load (%w): `ldd` lists the libraries that are "+
			"missing; %s", plugin, err, getCUDA)
	}
	client, err := openXLA(plugin, opts)
	switch {
	case err != nil && strings.Contains(err.Error(), "No visible GPU"):
		return nil, fmt.Errorf("PJRT plugin %s sees no GPU: it needs an NVIDIA GPU, its driver "+
			"(`nvidia-smi` lists both), and a CUDA_VISIBLE_DEVICES that does not hide it: %w", plugin, err)
	case err != nil:
		return nil, advisedError{fmt.Errorf("PJRT plugin %s: %w", plugin, err)}
	}
	return client, nil
}

// setXLAEnvironment sets XLA_FLAGS to the flags for the toolkit's directory, as JAX does when it
// loads the plugin, and for the cache. It disables go-xla's own check, which expects a different
// directory layout from JAX's and prints long warnings, and XLA's messages below fatal errors.
func setXLAEnvironment(plugin, cache string) error {
	const variable = "XLA_FLAGS"
	flags, err := cacheFlags(cache)
	if err != nil {
		return err
	}
	flags = strings.TrimSpace(xlaFlags(os.Getenv(variable), toolkitIn(plugin)) + flags)
	if flags != "" {
		if err := os.Setenv(variable, flags); err != nil {
			return fmt.Errorf("setting %s: %w", variable, err)
		}
	}
	defaults := map[string]string{"GOPJRT_CUDA_CHECKS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
	for name, value := range defaults {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("setting %s: %w", name, err)
			}
		}
	}
	return nil
}
