package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PluginPathVariable is the environment variable that says where PJRT plugins are: a list of directories or of plugin
// files, separated like PATH.
const PluginPathVariable = "PJRT_PLUGIN_LIBRARY_PATH"

// pluginNames are the file names that PJRT plugins for CUDA are distributed under.
var pluginNames = []string{"xla_cuda_plugin.so", "pjrt_c_api_cuda*_plugin.so", "pjrt?plugin?cuda*.so"}

// FindCUDAPlugin searches for a PJRT plugin for CUDA and returns its path: in the directories of
// PJRT_PLUGIN_LIBRARY_PATH (a plugin file itself may be listed too); in the site-packages of the active virtual or Conda
// environment; in those of the user; in those of the system; in the directories that go-xla installs to. The plugin
// of a newer CUDA release is preferred.
func FindCUDAPlugin() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // Then there are no places of the user.
	}
	return findCUDAPlugin(os.Getenv, home, "/")
}

// findCUDAPlugin searches the file system below root, with the given environment and home directory.
func findCUDAPlugin(getenv func(string) string, home, root string) (string, error) {
	var searched []string
	for _, place := range filepath.SplitList(getenv(PluginPathVariable)) {
		if place == "" {
			continue
		}
		searched = append(searched, place)
		if info, err := os.Stat(place); err == nil && !info.IsDir() {
			return filepath.Abs(place)
		}
		if path := pluginIn(place); path != "" {
			return filepath.Abs(path)
		}
	}
	for _, pattern := range pluginPlaces(getenv, home, root) {
		searched = append(searched, pattern)
		directories, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("searching %s: %w", pattern, err)
		}
		for i := len(directories) - 1; i >= 0; i-- { // Sorted names: the last has the newest CUDA and Python.
			if path := pluginIn(directories[i]); path != "" {
				return filepath.Abs(path)
			}
		}
	}
	return "", fmt.Errorf("no PJRT plugin for CUDA found: install it with `pip install \"jax[cuda13]\"`, or set %s to "+
		"the file or its directory; searched %s", PluginPathVariable, strings.Join(searched, ", "))
}

// pluginPlaces lists patterns of directories that may hold a plugin, the preferred first.
func pluginPlaces(getenv func(string) string, home, root string) []string {
	const packages = "lib/python3*/site-packages/jax_plugins/xla_cuda*"
	var places []string
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := getenv(variable); prefix != "" {
			places = append(places, filepath.Join(prefix, packages))
		}
	}
	if home != "" {
		places = append(places, filepath.Join(home, ".local", packages), filepath.Join(home, ".local/lib/go-xla"))
	}
	return append(places,
		filepath.Join(root, "usr/local", packages),
		filepath.Join(root, "usr/local/lib/python3*/dist-packages/jax_plugins/xla_cuda*"),
		filepath.Join(root, "usr", packages),
		filepath.Join(root, "usr/lib/python3*/dist-packages/jax_plugins/xla_cuda*"),
		filepath.Join(root, "usr/local/lib/go-xla"))
}

// pluginIn returns the path of a plugin in a directory, or "".
func pluginIn(directory string) string {
	for _, name := range pluginNames {
		matches, err := filepath.Glob(filepath.Join(directory, name))
		if err == nil && len(matches) > 0 {
			return matches[len(matches)-1]
		}
	}
	return ""
}
