package engine

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// PluginPathVariable is the environment variable with the search path of PJRT plugins: a list of
// directories or of plugin files, separated as in PATH.
const PluginPathVariable = "PJRT_PLUGIN_LIBRARY_PATH"

// getCUDA explains in error messages how to install a plugin.
const getCUDA = "`pip install \"jax[cuda13]\"` (CUDA 12: \"jax[cuda12]\") installs one"

// pluginNames lists the file names under which CUDA plugins for PJRT are distributed.
var pluginNames = []string{
	"xla_cuda_plugin.so", "pjrt_c_api_cuda*_plugin.so", "pjrt?plugin?cuda*.so"}

// jaxPlugins is the pattern for the directories of JAX's plugins in site-packages.
const jaxPlugins = "jax_plugins/xla_cuda*"

// FindCUDAPlugin searches for a PJRT plugin for CUDA and returns its path. It looks in the
// directories of PJRT_PLUGIN_LIBRARY_PATH (which may also list plugin files); in the site-packages
// of the active virtual or Conda environment; in the sys.path of the python3 in PATH; in the
// site-packages of the user and of the system; and in the directories where go-xla installs
// plugins. It prefers plugins for newer CUDA releases.
func FindCUDAPlugin() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // no user directories are searched
	}
	return pluginSearch{os.Getenv, home, "/", pythonPath}.find()
}

// pluginSearch holds the inputs of a search: the environment, the home directory, the root of the
// file system, and Python's module search path.
type pluginSearch struct {
	getenv     func(string) string
	home, root string
	python     func() []string
}

func (s pluginSearch) find() (string, error) {
	var searched []string
	for _, path := range filepath.SplitList(s.getenv(PluginPathVariable)) {
		if path == "" {
			continue
		}
		searched = append(searched, path)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return filepath.Abs(path)
		}
		if plugin := pluginIn(path); plugin != "" {
			return filepath.Abs(plugin)
		}
	}
	const distPackages = "lib/python3*/dist-packages/" + jaxPlugins
	for _, patterns := range []func() []string{
		func() []string {
			return below(sitePackages, s.getenv("VIRTUAL_ENV"), s.getenv("CONDA_PREFIX"))
		},
		func() []string { return below(jaxPlugins, s.python()...) },
		func() []string {
			return slices.Concat(
				below(".local/"+sitePackages, s.home), below(".local/lib/go-xla", s.home),
				below("usr/local/"+sitePackages, s.root), below("usr/local/"+distPackages, s.root),
				below("usr/"+sitePackages, s.root), below("usr/"+distPackages, s.root),
				below("usr/local/lib/go-xla", s.root))
		},
	} {
		for _, pattern := range patterns() {
			searched = append(searched, pattern)
			directories, err := filepath.Glob(pattern)
			if err != nil {
				return "", fmt.Errorf("searching %s: %w", pattern, err)
			}
			slices.SortStableFunc(directories, func(a, b string) int { // python3.9 before python3.12
				return cmp.Compare(len(a), len(b))
			})
			for _, directory := range slices.Backward(directories) { // newest CUDA and Python first
				if plugin := pluginIn(directory); plugin != "" {
					return filepath.Abs(plugin)
				}
			}
		}
	}
	return "", fmt.Errorf("no PJRT plugin for CUDA found: %s, or set %s to the file or its directory"+
		"; searched %s", getCUDA, PluginPathVariable, strings.Join(searched, ", "))
}

const sitePackages = "lib/python3*/site-packages/" + jaxPlugins

func below(pattern string, directories ...string) []string {
	var patterns []string
	for _, directory := range directories {
		if directory != "" {
			patterns = append(patterns, filepath.Join(directory, pattern))
		}
	}
	return patterns
}

// pythonPath returns the sys.path of the python3 in PATH, because an environment may be active
// without any variable that names it. It returns nil if there is no working python3.
func pythonPath() []string {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	const program = `import sys; print("\n".join(sys.path))`
	text, err := exec.CommandContext(ctx, "python3", "-c", program).Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// pluginIn returns the path of a plugin in a directory, or "" if there is none.
func pluginIn(directory string) string {
	for _, pattern := range pluginNames {
		names, err := fs.Glob(os.DirFS(directory), pattern)
		if err == nil && len(names) > 0 {
			return filepath.Join(directory, names[len(names)-1])
		}
	}
	return ""
}

// cacheFlags creates a directory for the results of XLA's autotuning and returns the XLA flag for
// it, preceded by a space. Several processes can share the directory.
func cacheFlags(directory string) (string, error) {
	if directory == "" {
		return "", nil
	}
	path, err := filepath.Abs(directory)
	if err != nil {
		return "", fmt.Errorf("XLA's cache: %w", err)
	}
	if strings.ContainsAny(path, " \t\n\"'") {
		return "", fmt.Errorf("XLA's cache %q: the path must not contain spaces or quotes", path)
	}
	path = filepath.Join(path, "tuned")
	if err := vfs.At(path).MkdirAll(); err != nil {
		return "", fmt.Errorf("XLA's cache: %w: this user must be able to write to device.cache", err)
	}
	return " --xla_gpu_per_fusion_autotune_cache_dir=" + path, nil
}

// toolkitFlag is XLA's flag for the directory of the CUDA toolkit.
const toolkitFlag = "--xla_gpu_cuda_data_dir="

// toolkitIn returns the directory of the CUDA toolkit that Python packages have installed beside
// JAX's plugin, or "" without one. XLA uses its assembler (ptxas) and math library (libdevice).
func toolkitIn(plugin string) string {
	site := filepath.Dir(filepath.Dir(filepath.Dir(plugin)))
	for _, pattern := range []string{"nvidia/cu1[0-9]", "nvidia/cuda_nvcc"} {
		names, _ := fs.Glob(os.DirFS(site), pattern) // The pattern is well-formed.
		for _, name := range slices.Backward(names) {
			directory := filepath.Join(site, name)
			for _, part := range []string{"bin/ptxas", "nvvm/libdevice"} {
				if _, err := os.Stat(filepath.Join(directory, part)); err == nil {
					return directory
				}
			}
		}
	}
	return ""
}

// xlaFlags appends the toolkit's directory to XLA's flags, unless they already name one.
func xlaFlags(flags, toolkit string) string {
	unusable := toolkit == "" || strings.ContainsAny(toolkit, " \t\"'")
	if unusable || strings.Contains(flags, toolkitFlag) {
		return flags
	}
	return strings.TrimSpace(flags + " " + toolkitFlag + toolkit)
}

// clientOptions returns the options that the plugin takes. Memory is preallocated only on request,
// so that other programs can share the GPU.
func clientOptions(o Options) map[string]any {
	options := map[string]any{"preallocate": o.Preallocate}
	if o.MemoryFraction > 0 {
		options["memory_fraction"] = float32(o.MemoryFraction)
	}
	if o.Allocator != device.DefaultAllocator {
		options["allocator"] = string(o.Allocator)
	}
	return options
}

// ownGPUs returns the indices of the n visible GPUs that belong to the process with the given local
// rank. It returns nil, which means all, if the process sees at most n, as when a launcher limits
// each process to its own.
func ownGPUs(seen, local, n int) []int64 {
	if seen <= n {
		return nil
	}
	first := max(local, 0) * n
	if first+n > seen {
		return nil // the number of devices is checked later
	}
	return lists.Make(n, func(i int) int64 { return int64(first + i) })
}
