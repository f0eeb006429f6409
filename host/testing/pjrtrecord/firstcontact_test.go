//go:build cuda

package pjrtrecord_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/testing/pjrtrecord"
)

// A machine simulates a computer with an NVIDIA GPU: a driver, JAX's packages and a PJRT plugin
// that computes nothing.
type machine struct {
	site, driver string   // directories of Python packages, and of the driver's library
	environment  []string // of commands
}

// driverCode is a driver whose version, result of cuInit and number of GPUs are given by the
// environment variable FAKE_DRIVER.
const driverCode = `
#include <stdio.h>
#include <stdlib.h>
static int say(int which) {
	int values[3] = {13000, 0, 1};
	const char *text = getenv("FAKE_DRIVER");
	if (text) sscanf(text, "%d %d %d", &values[0], &values[1], &values[2]);
	return values[which];
}
int cuInit(unsigned flags) { return say(1); }
int cuDriverGetVersion(int *version) { *version = say(0); return 0; }
int cuDeviceGetCount(int *count) { *count = say(2); return 0; }
int cuGetErrorString(int code, const char **text) { *text = "a reason"; return 0; }
`

func build(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.Command("go", append([]string{"build"}, arguments...)...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
}

// library compiles C code into a shared library.
func library(t *testing.T, path, code string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-")
	compile.Stdin = strings.NewReader(code)
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compile, err, text)
	}
}

// write writes an executable file, and creates its directory if necessary.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(text))
}

const packagedPlugin = "jax_plugins/xla_cuda13/xla_cuda_plugin.so"

// newMachine returns a machine without faults, made of the files in the directory of [parts].
func newMachine(t *testing.T, parts parts) *machine {
	t.Helper()
	root := t.TempDir()
	m := &machine{site: filepath.Join(root, "venv/lib/python3.12/site-packages"),
		driver: filepath.Join(root, "driver")}
	copied(t, filepath.Join(parts.dir, "plugin.so"), filepath.Join(m.site, packagedPlugin))
	copied(t, filepath.Join(parts.dir, "driver.so"), filepath.Join(m.driver, "libcuda.so.1"))
	for _, name := range []string{"cu13/lib/libcudart.so.13", "cu13/lib/libnvrtc.so.13",
		"cu13/lib/libcublas.so.13", "cu13/lib/libcublasLt.so.13", "nccl/lib/libnccl.so.2",
		"cudnn/lib/libcudnn.so.9"} {
		copied(t, filepath.Join(parts.dir, "empty.so"), filepath.Join(m.site, "nvidia", name))
	}
	for _, name := range []string{"bin/ptxas", "nvvm/libdevice/libdevice.10.bc"} {
		write(t, filepath.Join(m.site, "nvidia/cu13", name), "")
	}
	m.environment = []string{"VIRTUAL_ENV=" + filepath.Join(root, "venv"), "LD_LIBRARY_PATH=" +
		m.driver, "PJRT_PLUGIN_LIBRARY_PATH=", "CUDA_VISIBLE_DEVICES=0,1", "XLA_FLAGS="}
	return m
}

func (m *machine) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(m.site, name)); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) set(variable, value string) {
	m.environment = append(m.environment, variable+"="+value)
}

// parts holds the files that are compiled once for all machines.
type parts struct {
	dir  string // the plugin, the driver and an empty library
	pack string // cage and plugins, as in the archive of scripts/gpu-check.sh
}

func newParts(t *testing.T) parts {
	t.Helper()
	plugin, _ := pjrtrecord.Plugin(t, 1)
	p := parts{t.TempDir(), t.TempDir()}
	copied(t, plugin, filepath.Join(p.dir, "plugin.so"))
	library(t, filepath.Join(p.dir, "driver.so"), driverCode)
	library(t, filepath.Join(p.dir, "empty.so"), "int empty;")
	if built := os.Getenv("CAGE_TEST_CUDA"); built != "" { // .ci/run has it
		copied(t, built, filepath.Join(p.pack, "cage"))
	} else {
		build(t, "-tags", "cuda,netgo,osusergo", "-o", filepath.Join(p.pack, "cage"),
			"github.com/cage-qat/cage/cmd/cage")
	}
	for _, name := range []string{"quest", "adamw"} {
		to := filepath.Join(p.pack, "plugins", name)
		if built := os.Getenv("CAGE_TEST_PLUGINS"); built != "" {
			copied(t, filepath.Join(built, name), to)
		} else {
			build(t, "-o", to, "github.com/cage-qat/cage/plugins/"+name)
		}
	}
	return p
}

// TestFirstContact checks that each problem on the first use of a GPU is reported in one line with
// its remedy: in an error or, if cage has an alternative, in a warning.
func TestFirstContact(t *testing.T) {
	parts := newParts(t)
	const step, kernel, attention = "module @step", "xla.gpu.triton", "__cudnn$fmha"
	fault := func(event, program string, code int, message string) func(*testing.T, *machine) {
		return func(_ *testing.T, m *machine) {
			m.set(pjrtrecord.FaultVariable, fmt.Sprintf("%s|0|%d|%s|%s", event, code, program, message))
		}
	}
	lacks := func(name string) func(*testing.T, *machine) {
		return func(t *testing.T, m *machine) { m.remove(t, name) }
	}
	says := func(driver string) func(*testing.T, *machine) {
		return func(_ *testing.T, m *machine) { m.set("FAKE_DRIVER", driver) }
	}
	for _, c := range []struct {
		name   string
		inject func(*testing.T, *machine)
		flags  []string
		goesOn bool     // the run succeeds, usually with a warning
		want   []string // in one line
	}{
		{"nothing", func(*testing.T, *machine) {}, nil, true, nil},
		{"no driver", func(t *testing.T, m *machine) { m.set("LD_LIBRARY_PATH", "") }, nil, false,
			[]string{"this machine has no NVIDIA driver", "libcuda.so.1", "--gpus all"}},
		{"an older driver", says("12040 0 1"), nil, false,
			[]string{"too old", "CUDA 12.4", "for CUDA 13", "580 or newer", `pip install "jax[cuda12]"`}},
		{"no GPU", says("13000 100 0"), nil, false, []string{"sees no GPU", "nvidia-smi -L"}},
		{"hidden GPUs", func(t *testing.T, m *machine) {
			says("13000 0 0")(t, m)
			m.set("CUDA_VISIBLE_DEVICES", "")
		}, nil, false,
			[]string{"sees no GPU", `CUDA_VISIBLE_DEVICES is ""`}},
		{"MIG without instances", says("13000 0 0"), nil, false,
			[]string{"sees no GPU", "MIG instances"}},
		{"driver updated", says("13000 803 0"), nil, false, []string{"error 803", "restart"}},
		{"one of two GPUs dead", func(*testing.T, *machine) {},
			[]string{"--set", "device.count=2", "--set", "train.batch=4"}, false,
			[]string{"device.count", "2 replicas were requested, but it has 1 GPU", "nvidia-smi"}},
		{"no CUDA runtime", lacks("nvidia/cu13/lib/libcudart.so.13"), nil, false,
			[]string{"libcudart.so.13 is missing", "pip install nvidia-cuda-runtime`",
				"site-packages/nvidia/cu13/lib"}},
		{"no cuBLAS", lacks("nvidia/cu13/lib/libcublas.so.13"), nil, false,
			[]string{"libcublas.so.13 is missing", "pip install nvidia-cublas`"}},
		{"no cuDNN", lacks("nvidia/cudnn"), nil, false,
			[]string{"libcudnn.so.9 is missing", "pip install nvidia-cudnn-cu13`",
				"site-packages/nvidia/cudnn/lib"}},
		{"no NCCL with two GPUs",
			func(t *testing.T, m *machine) { lacks("nvidia/nccl")(t, m); m.set("CAGE_RECORD_DEVICES", "2") },
			[]string{"--set", "device.count=2", "--set", "train.batch=4"}, false,
			[]string{"libnccl.so.2 is missing", "pip install nvidia-nccl-cu13`"}},
		{"no NCCL with one GPU", lacks("nvidia/nccl"), nil, true, nil},
		{"no NVRTC", lacks("nvidia/cu13/lib/libnvrtc.so.13"), nil, true,
			[]string{"WARN", "attention", "libnvrtc.so.13 is missing", "pip install nvidia-cuda-nvrtc`"}},
		{"a library cut short", func(t *testing.T, m *machine) {
			write(t, filepath.Join(m.site, "nvidia/cudnn/lib/libcudnn.so.9"), "\x7fELF")
		}, nil, false,
			[]string{"libcudnn.so.9 does not load", "too short", "--force-reinstall"}},
		{"libraries of another CUDA", func(t *testing.T, m *machine) {
			copied(t, filepath.Join(m.site, packagedPlugin),
				filepath.Join(m.site, "jax_plugins/xla_cuda12/xla_cuda_plugin.so"))
			m.remove(t, packagedPlugin)
		}, nil, false, []string{"libcudart.so.12 is missing", "pip install nvidia-cuda-runtime-cu12`"}},
		{"no plugin", func(t *testing.T, m *machine) {
			m.remove(t, "jax_plugins")
			m.set("HOME", m.site)
			m.set("PATH", "/usr/bin:/bin")
		}, nil, false,
			[]string{"no PJRT plugin for CUDA found", `pip install "jax[cuda13]"`}},
		{"a wrong plugin file", func(t *testing.T, m *machine) {
			write(t, filepath.Join(m.site, packagedPlugin), "version https://git-lfs…")
		}, nil, false,
			[]string{packagedPlugin, "not a shared library", "install it again"}},
		{"another library as plugin", func(t *testing.T, m *machine) {
			copied(t, filepath.Join(parts.dir, "empty.so"), filepath.Join(m.site, packagedPlugin))
		}, nil, false, []string{packagedPlugin, "not a PJRT plugin", "GetPjrtApi"}},
		{"cache not writable",
			func(t *testing.T, m *machine) {
				write(t, filepath.Join(m.site, "file"), "")
			}, []string{"--set", `device.cache="SITE/file/cache"`}, false,
			[]string{"XLA's cache", "file", "device.cache"}},
		{"kernel refused", fault("compile", kernel, 12, "UNIMPLEMENTED: no kernel of this kind"), nil,
			true,
			[]string{"WARN", "without kernels", "kind=losses", "no kernel of this kind"}},
		{"attention refused", fault("compile", attention, 12, "UNIMPLEMENTED: no such graph in cuDNN"),
			nil, true,
			[]string{"WARN", "attention is computed without", "no such graph in cuDNN"}},
		{"compiling fails", fault("compile", step, 13,
			"INTERNAL: No PTX compilation provider is available."), nil, false,
			[]string{`executable "step`, "compiling", "pip install nvidia-cuda-nvcc"}},
		{"out of memory while compiling",
			fault("compile", step, 8, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."),
			nil, false,
			[]string{"compiling", "RESOURCE_EXHAUSTED", "train.batch", "train.recompute",
				"device.memory_fraction"}},
		{"out of memory while running",
			fault("execute", step, 8,
				"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nAnd a long report."), nil,
			false,
			[]string{"running", "RESOURCE_EXHAUSTED", "train.batch"}},
		{"/dev/shm full", fault("execute", step, 13, "INTERNAL: NCCL operation failed: Error while "+
			"creating shared memory segment /dev/shm/nccl-1 (size 9): No space left on device"), nil, false,
			[]string{"running", "/dev/shm is full", "--shm-size"}},
		{"the GPU fails", fault("execute", step, 13, "INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE"), nil,
			false, []string{"running", "the GPU has failed", "dmesg"}},
		{"a kernel fails", fault("execute", step, 13, "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS"), nil, false,
			[]string{"running", `device.kernels = "graph"`}},
		{"the device hangs", fault("execute", step, 0, "hang"),
			[]string{"--set", "device.timeout_minutes=0.02"}, false,
			[]string{`executable "step`, "has not answered for 1.2s", "nvidia-smi", "device.timeout_minutes"}},
		{"a client is refused", fault("client", "", 14, "UNAVAILABLE: CUDA_ERROR_DEVICE_UNAVAILABLE"),
			nil, false, []string{"opening device", "is not free"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, parts)
			c.inject(t, m)
			arguments := append([]string{"bench", "step", "--alone", "--steps", "1",
				"--set", `device={kind="cuda", precision="bfloat16"}`, "--set", "train.batch=2",
				"--set", "model={layers=1, width=128, heads=2, context=32, vocab=256}"}, c.flags...)
			if !strings.HasSuffix(c.name, "refused") { // avoid the trials, which take seconds
				arguments = append(arguments, "--set", `device.kernels="graph"`, "--set",
					`device.attention="plain"`)
			}
			for i := range arguments {
				arguments[i] = strings.ReplaceAll(arguments[i], "SITE", m.site)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(parts.pack, "cage"), arguments...)
			cmd.Env = append(append(os.Environ(), "CAGE_PLUGIN_PATH="+filepath.Join(parts.pack, "plugins")),
				m.environment...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			if (err == nil) != c.goesOn {
				t.Errorf("%v ended with %v", cmd.Args, err)
			}
			found := 0
			for line := range strings.Lines(stderr.String()) {
				all := true
				for _, want := range c.want {
					all = all && strings.Contains(line, want)
				}
				if all && c.want != nil {
					found++
				}
			}
			if c.want != nil && (found == 0 || found > 1 && !c.goesOn) { // each kind of kernel warns once
				t.Errorf("%d lines say all of %q, want one:\n%s", found, c.want, &stderr)
			}
		})
	}
}
