package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/internal/vfs"
)

// cacheFlags returns the flags of XLA for its caches in a directory, which it makes, with a space before each. One process at
// a time uses the file of compiled kernels. A process that finds it in use has only the other cache, which has a file for
// each kernel that was tuned.
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
		return "", fmt.Errorf("XLA's cache: %w", err)
	}
	flags := " --xla_gpu_per_fusion_autotune_cache_dir=" + filepath.Join(path, "tuned")
	locked, err := lockCache(vfs.At(path))
	if locked {
		flags += " --xla_gpu_kernel_cache_file=" + filepath.Join(path, "kernels")
	}
	return flags, err
}

// caches has the locks of the directories whose file of kernels this process uses. They are held until it ends, as XLA
// uses the files until then.
var caches = struct {
	sync.Mutex
	held map[string]vfs.Lock
}{held: map[string]vfs.Lock{}}

// lockCache locks the file of kernels in a directory. locked is false if another process has it.
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
		return false, fmt.Errorf("XLA's cache: %w", err)
	}
	caches.held[directory.Name] = lock
	return true, nil
}

// toolkitIn returns the directory of the CUDA toolkit that Python packages have installed beside JAX's plugin, or "".
// XLA takes the assembler and the library of mathematical functions from there.
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
	const flag = "--xla_gpu_cuda_data_dir="
	if toolkit == "" || strings.Contains(flags, flag) || strings.ContainsAny(toolkit, " \t\"'") {
		return flags
	}
	return strings.TrimSpace(flags + " " + flag + toolkit)
}

// clientOptions are what go-xla passes on to the plugin. Memory is taken as it is needed unless the caller wants it
// otherwise, so that other programs can share the GPU. TF32 is said either way: go-xla's default is to use it.
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
