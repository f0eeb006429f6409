package engine

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
)

// touch makes an empty file below root and returns its path.
func touch(t *testing.T, root, name string) string {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindCUDAPlugin(t *testing.T) {
	const site = "lib/python3.12/site-packages/jax_plugins/"
	root := t.TempDir()
	touch(t, root, "usr/"+site+"xla_cuda12/xla_cuda_plugin.so")
	system := touch(t, root, "usr/local/"+site+"xla_cuda13/xla_cuda_plugin.so")
	touch(t, root, "usr/local/"+site+"xla_cuda12/xla_cuda_plugin.so")
	touch(t, root, "usr/local/lib/python3.9/site-packages/jax_plugins/xla_cuda12/README")
	touch(t, root, "usr/local/lib/python3.9/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so")
	user := touch(t, root, "home/.local/lib/go-xla/pjrt_c_api_cuda13_plugin.so")
	venv := touch(t, root, "venv/"+site+"xla_cuda13/xla_cuda_plugin.so")
	python := touch(t, root, "opt/torch/site/jax_plugins/xla_cuda13/xla_cuda_plugin.so")
	own := touch(t, root, "own/pjrt-plugin-cuda.so")
	file := touch(t, root, "own/any-name.so")
	for _, tc := range []struct {
		name, home, venv, python, variable, want string
	}{
		{"system", "", "", "", "", system},
		{"user", "home", "", "", "", user},
		{"python", "home", "", "opt/torch/site", "", python},
		{"environment", "home", "venv", "opt/torch/site", "", venv},
		{"directory", "home", "venv", "", "missing:own", own},
		{"file", "home", "venv", "", "own/any-name.so:own", file},
		{"variable without a plugin", "home", "venv", "", "missing", venv},
	} {
		t.Run(tc.name, func(t *testing.T) {
			below := func(path string) string {
				if path == "" {
					return ""
				}
				return filepath.Join(root, path)
			}
			var listed []string
			for _, place := range filepath.SplitList(tc.variable) {
				listed = append(listed, below(place))
			}
			env := map[string]string{
				PluginPathVariable: strings.Join(listed, string(filepath.ListSeparator)),
				"VIRTUAL_ENV":      below(tc.venv),
			}
			search := pluginSearch{func(name string) string { return env[name] }, below(tc.home), root,
				func() []string {
					return []string{"", below(tc.python)}
				}}
			got, err := search.find()
			if err != nil || got != tc.want {
				t.Errorf("found %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestFindCUDAPluginSaysWhatIsMissing(t *testing.T) {
	_, err := pluginSearch{func(string) string { return "" }, "", t.TempDir(),
		func() []string { return nil }}.find()
	if err == nil {
		t.Fatal("found a plugin in an empty directory")
	}
	for _, want := range []string{"pip install", PluginPathVariable, "searched"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %q", err, want)
		}
	}
}

func TestToolkit(t *testing.T) {
	root := t.TempDir()
	plugin := touch(t, root, "site/jax_plugins/xla_cuda13/xla_cuda_plugin.so")
	touch(t, root, "site/nvidia/cu12/include/cuda.h")
	if got := toolkitIn(plugin); got != "" {
		t.Errorf("found a toolkit without tools: %s", got)
	}
	touch(t, root, "site/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
	if got, want := toolkitIn(plugin), filepath.Join(root, "site/nvidia/cuda_nvcc"); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	touch(t, root, "site/nvidia/cu13/bin/ptxas")
	toolkit := filepath.Join(root, "site/nvidia/cu13")
	if got := toolkitIn(plugin); got != toolkit {
		t.Errorf("found %q, want %q", got, toolkit)
	}
	for _, tc := range [][3]string{
		{"", "", ""}, {"--a=1", "", "--a=1"}, {"", "/x", "--xla_gpu_cuda_data_dir=/x"},
		{"--a=1", "/x", "--a=1 --xla_gpu_cuda_data_dir=/x"},
		{"--xla_gpu_cuda_data_dir=/y", "/x", "--xla_gpu_cuda_data_dir=/y"}, {"--a", "/my cuda", "--a"},
	} {
		if got := xlaFlags(tc[0], tc[1]); got != tc[2] {
			t.Errorf("flags %q with %q become %q, want %q", tc[0], tc[1], got, tc[2])
		}
	}
}

func TestCacheFlags(t *testing.T) {
	if flags, err := cacheFlags(""); flags != "" || err != nil {
		t.Errorf("no cache has flags %q, %v", flags, err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	want := " --xla_gpu_per_fusion_autotune_cache_dir=" + dir + "/tuned"
	for range 2 { // twice in one process
		if flags, err := cacheFlags(dir); err != nil || flags != want {
			t.Errorf("flags %q, %v, want %q", flags, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "tuned")); err != nil || !info.IsDir() {
		t.Errorf("the directory was not made: %v", err)
	}
	spaced := filepath.Join(dir, "a b")
	if _, err := cacheFlags(spaced); err == nil ||
		!strings.Contains(err.Error(), "must not contain spaces") {
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
	for _, tc := range []struct {
		of   Options
		want map[string]any
	}{
		{Options{Allocator: device.DefaultAllocator}, map[string]any{"preallocate": false}},
		{Options{Preallocate: true, MemoryFraction: 0.5, Allocator: "cuda_async"},
			map[string]any{"preallocate": true, "memory_fraction": float32(0.5),
				"allocator": "cuda_async"}},
	} {
		if got := clientOptions(tc.of); !maps.Equal(got, tc.want) {
			t.Errorf("%+v becomes %v, want %v", tc.of, got, tc.want)
		}
	}
}
