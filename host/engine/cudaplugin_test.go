package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	user := touch(t, root, "home/.local/lib/go-xla/pjrt_c_api_cuda13_plugin.so")
	venv := touch(t, root, "venv/"+site+"xla_cuda13/xla_cuda_plugin.so")
	own := touch(t, root, "own/pjrt-plugin-cuda.so")
	file := touch(t, root, "own/any-name.so")
	for _, tc := range []struct {
		name, home, venv, variable, want string
	}{
		{"system", "", "", "", system},
		{"user", "home", "", "", user},
		{"environment", "home", "venv", "", venv},
		{"directory", "home", "venv", "missing:own", own},
		{"file", "home", "venv", "own/any-name.so:own", file},
		{"variable without a plugin", "home", "venv", "missing", venv},
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
			got, err := findCUDAPlugin(func(name string) string { return env[name] }, below(tc.home), root)
			if err != nil || got != tc.want {
				t.Errorf("found %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestFindCUDAPluginSaysWhatIsMissing(t *testing.T) {
	_, err := findCUDAPlugin(func(string) string { return "" }, "", t.TempDir())
	if err == nil {
		t.Fatal("found a plugin in an empty directory")
	}
	for _, want := range []string{"pip install", PluginPathVariable, "searched"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %q", err, want)
		}
	}
}
