package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/internal/vfs"
)

// PluginPathVariable is the environment variable with the search path of PJRT plugins: a list of
// directories or of plugin files, separated as in PATH.
const PluginPathVariable = "PJRT_PLUGIN_LIBRARY_PATH"

// getCUDA is the hint on how to install a plugin.
const getCUDA = "`pip install \"jax[cuda13]\"` (CUDA 12: \"jax[cuda12]\") installs one"

// pluginNames are the file names that PJRT plugins for CUDA are distributed under.
var pluginNames = []string{"xla_cuda_plugin.so", "pjrt_c_api_cuda*_plugin.so", "pjrt?plugin?cuda*.so"}

// jaxPlugins is the pattern of the directories of JAX's plugins in site-packages.
const jaxPlugins = "jax_plugins/xla_cuda*"

// FindCUDAPlugin searches for a PJRT plugin for CUDA and returns its path. It looks in the directories of
// PJRT_PLUGIN_LIBRARY_PATH (which may also list plugin files); in the site-packages of the active virtual or Conda
// environment; where the python3 in PATH finds packages; in the site-packages of the user; in those of the system; and
// in the directories into which go-xla installs. It prefers the plugin for a newer CUDA release.
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

// commonPlaces returns patterns of the usual directories of plugins and packages, in order of preference.
func (s pluginSearch) commonPlaces() []string {
	return slices.Concat(
		below(".local/"+sitePackages, s.home), below(".local/lib/go-xla", s.home),
		below("usr/local/"+sitePackages, s.root), below("usr/local/lib/python3*/dist-packages/"+jaxPlugins, s.root),
		below("usr/"+sitePackages, s.root), below("usr/lib/python3*/dist-packages/"+jaxPlugins, s.root),
		below("usr/local/lib/go-xla", s.root))
}

// pythonPath returns the sys.path of the python3 in PATH: an environment can be in use without a
// variable that names it. It returns nil if there is no working python3.
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

// checkPluginPath returns an error for a path that go-xla would misread: it parses what follows a
// comma as options, and recognizes CUDA plugins by their path.
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

// cacheFlags creates a directory for XLA's caches and returns the flags for them, a space before
// each. Only one process at a time can use the file of compiled kernels; any other gets only the
// autotuning cache, which has a file for each kernel.
func cacheFlags(directory string) (string, error) {
	if directory == "" {
		return "", nil
	}
	path, err := filepath.Abs(directory)
	if err != nil {
		return "", fmt.Errorf("XLA's cache: %w", err)
	}
	if strings.ContainsAny(path, " \t\n\"'") {
		return "", fmt.Errorf("XLA's cache %q: its flags take no path with spaces or quotes", path)
	}
	if err := vfs.At(path).Join("tuned").MkdirAll(); err != nil {
		return "", fmt.Errorf("XLA's cache: %w: device.cache must name a directory in which this user can write", err)
	}
	flags := " --xla_gpu_per_fusion_autotune_cache_dir=" + filepath.Join(path, "tuned")
	locked, err := lockCache(vfs.At(path))
	if locked {
		flags += " --xla_gpu_kernel_cache_file=" + filepath.Join(path, "kernels")
	}
	return flags, err
}

// caches holds the locks of the directories whose kernel file this process uses. They are held
// until the process ends, because XLA uses the files until then.
var caches = struct {
	sync.Mutex
	held map[string]vfs.Lock
}{held: map[string]vfs.Lock{}}

// lockCache locks the kernel file in a directory. locked is false if another process holds the lock.
func lockCache(directory vfs.Path) (locked bool, err error) {
	caches.Lock()
	defer caches.Unlock()
	if caches.held[directory.Name] != nil {
		return true, nil
	}
	lock, err := directory.Join(vfs.LockFile).Lock()
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("XLA's cache: %w: device.cache must name a directory in which this user can write", err)
	}
	caches.held[directory.Name] = lock
	return true, nil
}

// toolkitFlag is XLA's flag for the directory of the CUDA toolkit.
const toolkitFlag = "--xla_gpu_cuda_data_dir="

// toolkitIn returns the directory of the CUDA toolkit that Python packages have installed beside
// JAX's plugin, or "". XLA uses its assembler (ptxas) and math library (libdevice).
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

// xlaFlags adds the directory of the toolkit to the flags of XLA, unless they name one already.
func xlaFlags(flags, toolkit string) string {
	if toolkit == "" || strings.Contains(flags, toolkitFlag) || strings.ContainsAny(toolkit, " \t\"'") {
		return flags
	}
	return strings.TrimSpace(flags + " " + toolkitFlag + toolkit)
}

// clientOptions returns the options that go-xla passes to the plugin. By default memory is not preallocated, so
// that other programs can share the GPU. TF32 is always set explicitly, because go-xla enables it by default.
func clientOptions(o Options) string {
	text := fmt.Sprintf("tf32=%t,preallocate=%t", o.TF32, o.Preallocate)
	if o.MemoryFraction > 0 {
		text += fmt.Sprintf(",memory_fraction=%g", o.MemoryFraction)
	}
	if o.Allocator != device.DefaultAllocator {
		text += ",allocator=" + string(o.Allocator)
	}
	return text
}

// ownGPUs returns the indices of the n GPUs, of those visible, that belong to the process with the
// given local rank; nil for all visible ones, as when a launcher shows each process only its own.
func ownGPUs(seen, local, n int) []int64 {
	if seen <= n {
		return nil
	}
	first := max(local, 0) * n
	if first+n > seen {
		return nil // the number of devices is checked later
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(first + i)
	}
	return list
}
