package engine

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
)

// This file knows what a PJRT plugin for CUDA needs beside it, and where Python packages put that. XLA opens NVIDIA's
// libraries by their names, and finds those that the process has loaded before. JAX loads them in Python; cage has no
// Python, and does the same before it loads the plugin. cudaload.go loads; nothing here does.

// A cudaLibrary is one of NVIDIA's libraries.
type cudaLibrary struct {
	file   string // name, without its version
	soname [2]int // version in the name, for CUDA 12 and 13
	folder string // in nvidia/ of CUDA 12's packages; those of CUDA 13 are in nvidia/cu13, unless apart
	apart  bool
	pip    string // package, to which those of CUDA 12 add -cu12; those of CUDA 13 that are apart add -cu13
	// lack says what a run does without it; empty: nothing is lost, as far as cage uses XLA.
	lack   string
	needed need
}

type need int

const (
	never     need = iota // XLA may ask for it, but cage's programs do not
	useful                // something is slower without
	oneDevice             // nothing runs without
	replicas              // nothing runs on several GPUs without
)

// cudaLibraries are the libraries in the order in which they need each other. The versions and folders are those of
// NVIDIA's packages that jax-cuda12-plugin and jax-cuda13-plugin 0.12.0.1 depend on.
var cudaLibraries = []cudaLibrary{
	{"libcudart", [2]int{12, 13}, "cuda_runtime", false, "nvidia-cuda-runtime", "", oneDevice},
	{"libnvrtc", [2]int{12, 13}, "cuda_nvrtc", false, "nvidia-cuda-nvrtc", "cuDNN cannot fuse attention without it, which takes more time and memory", useful},
	{"libnvJitLink", [2]int{12, 13}, "nvjitlink", false, "nvidia-nvjitlink", "", never},
	{"libcublasLt", [2]int{12, 13}, "cublas", false, "nvidia-cublas", "", oneDevice},
	{"libcublas", [2]int{12, 13}, "cublas", false, "nvidia-cublas", "", oneDevice},
	{"libcusparse", [2]int{12, 12}, "cusparse", false, "nvidia-cusparse", "", never},
	{"libcusolver", [2]int{11, 12}, "cusolver", false, "nvidia-cusolver", "", never},
	{"libcufft", [2]int{11, 12}, "cufft", false, "nvidia-cufft", "", never},
	{"libcupti", [2]int{12, 13}, "cuda_cupti", false, "nvidia-cuda-cupti", "", never},
	{"libnccl", [2]int{2, 2}, "nccl", true, "nvidia-nccl", "", replicas},
	{"libnvshmem_host", [2]int{3, 3}, "nvshmem", true, "nvidia-nvshmem", "", never},
	{"libcudnn", [2]int{9, 9}, "cudnn", true, "nvidia-cudnn", "", oneDevice},
}

// oldestRelease is the release of CUDA that the first of each pair of versions is for.
const oldestRelease = 12

// releaseOf returns the release of CUDA that a plugin is for, by its path; 0 if it does not say, or if that is one whose
// libraries are not known.
func releaseOf(plugin string) int {
	m := regexp.MustCompile(`cuda(1[0-9])\b|cuda(1[0-9])_`).FindStringSubmatch(filepath.ToSlash(plugin))
	if m == nil {
		return 0
	}
	release, _ := strconv.Atoi(m[1] + m[2])
	if release < oldestRelease || release > oldestRelease+1 {
		return 0
	}
	return release
}

// name is the name under which XLA asks for the library.
func (l cudaLibrary) name(release int) string {
	return fmt.Sprintf("%s.so.%d", l.file, l.soname[release-oldestRelease])
}

// install is the command that brings the library.
func (l cudaLibrary) install(release int) string {
	suffix := ""
	if release == oldestRelease || l.apart {
		suffix = fmt.Sprintf("-cu%d", release)
	}
	return "`pip install " + l.pip + suffix + "`"
}

// directories are where packages put the library, beside a plugin: in the same site-packages, or, as go-xla installs, in a
// directory nvidia beside or above the plugin.
func (l cudaLibrary) directories(plugin string, release int) []string {
	folder := l.folder
	if release > oldestRelease && !l.apart {
		folder = fmt.Sprintf("cu%d", release)
	}
	var list []string
	directory := filepath.Dir(plugin)
	for range 3 {
		list = append(list, filepath.Join(directory, "nvidia", folder, "lib"))
		directory = filepath.Dir(directory)
	}
	slices.Reverse(list) // site-packages first
	return list
}

// A loader loads a shared library by its path, or by its name from where the system looks.
type loader func(path string) error

// loadLibraries loads NVIDIA's libraries for a plugin: those of Python packages beside it, else those of the system. The
// error names each that is missing and without which nothing runs on so many GPUs; warn is told of those without which a
// run is slower.
func loadLibraries(plugin string, count int, load loader, warn func(message string, details ...any)) error {
	release := releaseOf(plugin)
	if release == 0 {
		return nil // whoever installed it knows
	}
	var failed []error
	for _, l := range cudaLibraries {
		err := l.load(plugin, release, load)
		switch {
		case err == nil || l.needed == never || l.needed == replicas && count < 2:
		case l.needed == useful:
			warn("a library of CUDA is missing: "+l.lack, "reason", err)
		default:
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// load loads the library. A file that is there and does not load is told apart from one that is not there.
func (l cudaLibrary) load(plugin string, release int, load loader) error {
	name, places := l.name(release), l.directories(plugin, release)
	for _, directory := range places {
		path := filepath.Join(directory, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := load(path); err != nil {
			return fmt.Errorf("%s does not load (%w): `pip install --force-reinstall` of its package, or %s", path, err, l.install(release))
		}
		return nil
	}
	if err := load(name); err != nil {
		return fmt.Errorf("%s is missing: %s brings it; looked in %s, in LD_LIBRARY_PATH, and where the system keeps libraries", name, l.install(release), places[0])
	}
	return nil
}

// checkPluginFile refuses a file that is no PJRT plugin for this machine: what the system's loader says of such files is
// hard to understand.
func checkPluginFile(path string) error {
	file, err := elf.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("PJRT plugin: %w", err)
	} else if err != nil {
		return fmt.Errorf("PJRT plugin %s is no shared library, or a part of one (%w): install it again, or set %s to another", path, err, PluginPathVariable)
	}
	defer file.Close()
	if own := machines[runtime.GOARCH]; own != 0 && file.Machine != own {
		return fmt.Errorf("PJRT plugin %s is for another processor (%s, this one is %s): install that for this machine", path, file.Machine, own)
	}
	symbols, err := file.DynamicSymbols()
	if err == nil && !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "GetPjrtApi" && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("%s is no PJRT plugin: it is a library without the function GetPjrtApi; %s", path, getCUDA)
	}
	return nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// A driverState is what NVIDIA's driver says of itself.
type driverState struct {
	Missing string // why its library does not load; empty: it does
	Version int    // newest CUDA that it supports, as 1000 × major + 10 × minor; 0: unknown
	Status  int    // error code of its initialization; 0: none
	Text    string // that error, in the driver's words
	Devices int    // GPUs that the program may use
}

// Codes of the driver's errors, from CUDA's reference of the type CUresult.
const (
	driverNoDevice  = 100
	driverBadDevice = 101
)

// neededDriver is the oldest version of NVIDIA's driver for each release of CUDA.
var neededDriver = map[int]string{12: "525", 13: "580"}

// check says what is wrong with the driver for a plugin, and what to do. visible is the value of CUDA_VISIBLE_DEVICES, and
// whether it is set.
func (s driverState) check(plugin string, visible string, limited bool) error {
	release := releaseOf(plugin)
	hides := ""
	if limited {
		hides = fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q, which must name GPUs that `nvidia-smi -L` lists, by number or UUID", visible)
	}
	var err error
	switch {
	case s.Missing != "":
		err = fmt.Errorf("there is no NVIDIA driver here: libcuda.so.1 does not load (%s): install NVIDIA's driver; a container needs `--gpus all`", s.Missing)
	case s.Version > 0 && release > 0 && s.Version < 1000*release:
		err = fmt.Errorf("NVIDIA's driver is too old: it supports CUDA %d.%d, and PJRT plugin %s is for CUDA %d: update the driver to %s or newer",
			s.Version/1000, s.Version%1000/10, plugin, release, neededDriver[release])
		if release > oldestRelease && s.Version >= 1000*oldestRelease {
			err = fmt.Errorf("%w, or `pip uninstall jax-cuda%d-pjrt` and `pip install \"jax[cuda%d]\"`", err, release, oldestRelease)
		}
	case s.Status == driverNoDevice, s.Status == driverBadDevice, s.Status == 0 && s.Devices == 0:
		err = fmt.Errorf("NVIDIA's driver sees no GPU: `nvidia-smi -L` lists those that there are, and MIG instances where MIG is on, of which a program needs one%s", hides)
	case s.Status != 0:
		err = fmt.Errorf("NVIDIA's driver does not start: error %d (%s): `nvidia-smi` and `dmesg` say more; restart the machine after an update of the driver", s.Status, s.Text)
	}
	return err
}
