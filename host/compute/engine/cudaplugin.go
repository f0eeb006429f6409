package engine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// PluginPathVariable is the environment variable that says where to find PJRT plugins: a list of directories or of
// plugin files, separated as in PATH.
const PluginPathVariable = "PJRT_PLUGIN_LIBRARY_PATH"

// getCUDA says how to get what the CUDA device needs.
const getCUDA = "`pip install \"jax[cuda13]\"` (CUDA 12: \"jax[cuda12]\") installs one"

// pluginNames are the file names that PJRT plugins for CUDA are distributed under.
var pluginNames = []string{"xla_cuda_plugin.so", "pjrt_c_api_cuda*_plugin.so", "pjrt?plugin?cuda*.so"}

// jaxPlugins is where JAX's plugins are below a directory of Python packages.
const jaxPlugins = "jax_plugins/xla_cuda*"

// FindCUDAPlugin searches for a PJRT plugin for CUDA and returns its path. It looks in the directories of
// PJRT_PLUGIN_LIBRARY_PATH (which may also list plugin files); in the site-packages of the active virtual or Conda
// environment; where the python3 in PATH finds packages; in the site-packages of the user; in those of the system; and
// in the directories into which go-xla installs. It prefers the plugin for a newer CUDA release.
func FindCUDAPlugin() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // the user has no places to search
	}
	return pluginSearch{os.Getenv, home, "/", pythonPath}.find()
}

// pluginSearch is where to search: the environment, the home directory, the root of the file system, and the directories
// in which Python finds packages.
type pluginSearch struct {
	getenv     func(string) string
	home, root string
	python     func() []string
}

func (s pluginSearch) find() (string, error) {
	var searched []string
	for _, place := range filepath.SplitList(s.getenv(PluginPathVariable)) {
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
	active := func() []string { return below(sitePackages, s.getenv("VIRTUAL_ENV"), s.getenv("CONDA_PREFIX")) }
	packages := func() []string { return below(jaxPlugins, s.python()...) }
	for _, places := range []func() []string{active, packages, s.commonPlaces} {
		for _, pattern := range places() {
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
	}
	return "", fmt.Errorf("no PJRT plugin for CUDA found: %s, or set %s to the file or its directory; searched %s",
		getCUDA, PluginPathVariable, strings.Join(searched, ", "))
}

const sitePackages = "lib/python3*/site-packages/" + jaxPlugins

// below joins a pattern to each directory that is not empty.
func below(pattern string, directories ...string) []string {
	var places []string
	for _, directory := range directories {
		if directory != "" {
			places = append(places, filepath.Join(directory, pattern))
		}
	}
	return places
}

// commonPlaces are patterns of directories where plugins and packages usually are, the preferred first.
func (s pluginSearch) commonPlaces() []string {
	return slices.Concat(
		below(".local/"+sitePackages, s.home), below(".local/lib/go-xla", s.home),
		below("usr/local/"+sitePackages, s.root), below("usr/local/lib/python3*/dist-packages/"+jaxPlugins, s.root),
		below("usr/"+sitePackages, s.root), below("usr/lib/python3*/dist-packages/"+jaxPlugins, s.root),
		below("usr/local/lib/go-xla", s.root))
}

// pythonPath asks the python3 of the PATH where it finds packages: an environment can be in use without any variable
// that names it. It returns nothing if there is no python3, or none that answers.
func pythonPath() []string {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := exec.CommandContext(ctx, "python3", "-c", `import sys; print("\n".join(sys.path))`).Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// pluginIn returns the path of a plugin in a directory, or "".
func pluginIn(directory string) string {
	for _, pattern := range pluginNames {
		names, err := fs.Glob(os.DirFS(directory), pattern)
		if err == nil && len(names) > 0 {
			return filepath.Join(directory, names[len(names)-1])
		}
	}
	return ""
}

// checkPluginPath refuses paths that go-xla would misread: it takes the options after a comma, and a plugin for one of
// CUDA by its path.
func checkPluginPath(path string) error {
	upper := strings.ToUpper(path)
	switch {
	case strings.Contains(path, ","):
		return fmt.Errorf("PJRT plugin %s: its path must not have a comma: give it one without, by a symbolic link", path)
	case !strings.Contains(upper, "CUDA") && !strings.Contains(upper, "NVIDIA"):
		return fmt.Errorf("PJRT plugin %s: its path must contain \"cuda\", or it is not taken for a plugin of CUDA: give it one that does, by a symbolic link", path)
	}
	return nil
}
