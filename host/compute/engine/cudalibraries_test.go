package engine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestReleaseOf(t *testing.T) {
	for path, want := range map[string]int{
		"/v/lib/python3.12/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so": 13,
		"/v/lib/python3.12/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so": 12,
		"/h/.local/lib/go-xla/pjrt_c_api_cuda12_plugin.so":                          12,
		"/h/.local/lib/go-xla/pjrt_c_api_cuda_plugin.so":                            0,
		"/tmp/pjrt_cuda_record.so":                                                  0,
		"/v/jax_plugins/xla_cuda14/xla_cuda_plugin.so":                              0,
	} {
		if got := releaseOf(path); got != want {
			t.Errorf("the plugin %s is for CUDA %d, want %d", path, got, want)
		}
	}
}

// TestLoadLibraries checks that libraries from Python packages are loaded by path and others by
// name, and that errors name missing libraries and the commands that install them.
func TestLoadLibraries(t *testing.T) {
	root := t.TempDir()
	site := "v/lib/python3.12/site-packages/"
	plugin := touch(t, root, site+"jax_plugins/xla_cuda13/xla_cuda_plugin.so")
	cudart := touch(t, root, site+"nvidia/cu13/lib/libcudart.so.13")
	cudnn := touch(t, root, site+"nvidia/cudnn/lib/libcudnn.so.9")
	broken := touch(t, root, site+"nvidia/cu13/lib/libcublas.so.13")
	var loaded, warned []string
	load := func(path string) error {
		loaded = append(loaded, path)
		if filepath.IsAbs(path) && path != broken || path == "libcublasLt.so.13" {
			return nil
		}
		return errors.New("no such file")
	}
	warn := func(message string, _ ...any) { warned = append(warned, message) }
	err := loadLibraries(plugin, 2, load, warn)
	text := strings.Join(loaded, " ")
	for _, want := range []string{cudart, cudnn, "libcublasLt.so.13", "libnvJitLink.so.13"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s was not tried: %s", want, text)
		}
	}
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{broken + " does not load", "pip install nvidia-cublas`",
		"libnccl.so.2 is missing", "pip install nvidia-nccl-cu13",
		filepath.Join(root, site, "nvidia/nccl/lib")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "cufft") || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("the error is about more than what is needed: %v", err)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "attention") {
		t.Errorf("warnings: %q, want one about attention", warned)
	}
	if err := loadLibraries(plugin, 1, func(string) error { return nil }, warn); err != nil {
		t.Error(err)
	}
}

func TestCheckPluginFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("shared libraries of Linux")
	}
	root := t.TempDir()
	text := filepath.Join(root, "cuda.so")
	if err := os.WriteFile(text, []byte("version https://git-lfs.github.com/spec/v1"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(root, "none.so"): "no such file",
		text:                           "is not a shared library",
	} {
		if err := checkPluginFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	library := filepath.Join(root, "cuda_library.so")
	compile := exec.Command(compiler, "-shared", "-fPIC", "-x", "c", "-o", library, "-")
	compile.Stdin = strings.NewReader("int other(void) { return 0; }")
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := checkPluginFile(library); err == nil ||
		!strings.Contains(err.Error(), "without the function GetPjrtApi") {
		t.Error(err)
	}
}

func TestDriverState(t *testing.T) {
	const plugin = "/v/jax_plugins/xla_cuda13/xla_cuda_plugin.so"
	for _, c := range []struct {
		state driverState
		want  []string // in the error; nil: there is none
	}{
		{driverState{Version: 13000, Devices: 1}, nil},
		{driverState{Missing: "no such file"},
			[]string{"no NVIDIA driver", "no such file", "--gpus all"}},
		{driverState{Version: 12040, Devices: 1},
			[]string{"supports CUDA 12.4", "for CUDA 13", "580", "jax[cuda12]"}},
		{driverState{Version: 11080, Devices: 1}, []string{"supports CUDA 11.8", "580"}},
		{driverState{Version: 13000}, []string{"sees no GPU", `CUDA_VISIBLE_DEVICES is "7"`, "MIG"}},
		{driverState{Version: 13000, Status: 100}, []string{"sees no GPU"}},
		{driverState{Version: 13000, Status: 46, Text: "exclusive"}, []string{"error 46 (exclusive)"}},
	} {
		err := c.state.check(plugin, "7", true)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c.state, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v: the error is not one line that says %q: %v", c.state, want, err)
			}
		}
	}
}
