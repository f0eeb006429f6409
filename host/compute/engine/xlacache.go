package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/vfs"
)

// cacheFlags are the flags of XLA for its caches in a directory, which is made, with a space before each. The file of
// compiled kernels is for one process at a time: a process that finds it in use leaves it alone, and has the other
// cache, a file for each kernel that was tuned.
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
	mine, err := takeCache(vfs.At(path))
	if mine {
		flags += " --xla_gpu_kernel_cache_file=" + filepath.Join(path, "kernels")
	}
	return flags, err
}

// caches has the locks of directories whose file of kernels this process uses: until it ends, as XLA does.
var caches = struct {
	sync.Mutex
	held map[string]vfs.Lock
}{held: map[string]vfs.Lock{}}

// takeCache tells whether the file of kernels in the directory is this process's.
func takeCache(directory vfs.Path) (mine bool, err error) {
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
