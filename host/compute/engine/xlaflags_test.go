package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
)

// cacheVariable has a process of this test take the cache in a directory.
const cacheVariable = "CAGE_TEST_CACHE"

// TestCacheFlags: one process at a time has the file of compiled kernels.
func TestCacheFlags(t *testing.T) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		flags, err := cacheFlags(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("FLAGS%s", flags)
		return
	}
	if flags, err := cacheFlags(""); flags != "" || err != nil {
		t.Errorf("no cache has flags %q, %v", flags, err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	other := func() string {
		command := exec.Command(os.Args[0], "-test.run=^TestCacheFlags$", "-test.v")
		command.Env = append(os.Environ(), cacheVariable+"="+dir)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	tuned, kernels := "--xla_gpu_per_fusion_autotune_cache_dir="+dir+"/tuned", "--xla_gpu_kernel_cache_file="+dir+"/kernels"
	if out := other(); !strings.Contains(out, tuned) || !strings.Contains(out, kernels) {
		t.Errorf("the first process has %s", out)
	}
	for range 2 { // twice in one process
		if flags, err := cacheFlags(dir); err != nil || flags != " "+tuned+" "+kernels {
			t.Errorf("this process has %q, %v", flags, err)
		}
	}
	if out := other(); !strings.Contains(out, tuned) || strings.Contains(out, kernels) {
		t.Errorf("the process beside this one has %s", out)
	}
	spaced := filepath.Join(dir, "a b")
	if _, err := cacheFlags(spaced); err == nil || !strings.Contains(err.Error(), "no path with spaces") {
		t.Errorf("a path with a space: %v", err)
	}
	if _, err := os.Stat(spaced); err == nil {
		t.Error("a path that is refused was made")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheFlags(file); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func TestClientOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"tf32=false,preallocate=false":                                        {Allocator: device.DefaultAllocator},
		"tf32=true,preallocate=true,memory_fraction=0.5,allocator=cuda_async": {TF32: true, Preallocate: true, MemoryFraction: 0.5, Allocator: "cuda_async"},
	} {
		if got := clientOptions(o); got != want {
			t.Errorf("%+v becomes %s, want %s", o, got, want)
		}
	}
	for _, o := range []Options{{Allocator: "malloc"}, {MemoryFraction: 1.5}} {
		if _, err := Open(device.CPU, o); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
