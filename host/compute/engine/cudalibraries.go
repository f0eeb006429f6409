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
	"strings"
)

// This file lists the libraries that a PJRT plugin for CUDA depends on, and the directories where
// Python packages install them. XLA opens NVIDIA's libraries by name, which succeeds if the process
// has already loaded them. So cage, like JAX in Python, loads them before it loads the plugin
// (cudaload.go).

// A cudaLibrary is one of NVIDIA's shared libraries.
type cudaLibrary struct {
	file   string // file name, without its version
	soname [2]int // version in the file name, for CUDA 12 and 13
	// folder is the directory below nvidia/ into which the package nvidia-FOLDER-cu12 installs the
	// library. For CUDA 13 the directory is cu13 and the package nvidia-FOLDER, unless apart is
	// set: then the directory is the same and the package is nvidia-FOLDER-cu13.
	folder string
	apart  bool
	needed need
}

type need int

const (
	never     need = iota // XLA may ask for it, but cage's programs do not
	attention             // without it, cuDNN cannot fuse attention
	oneDevice             // without it, nothing runs
	replicas              // without it, nothing runs on several GPUs
)

// cudaLibraries lists the libraries, dependencies first. The versions and folders are taken from
// the NVIDIA packages that jax-cuda12-plugin and jax-cuda13-plugin 0.12.0.1 depend on.
var cudaLibraries = []cudaLibrary{
	{"libcudart", [2]int{12, 13}, "cuda_runtime", false, oneDevice},
	{"libnvrtc", [2]int{12, 13}, "cuda_nvrtc", false, attention},
	{"libnvJitLink", [2]int{12, 13}, "nvjitlink", false, never},
	{"libcublasLt", [2]int{12, 13}, "cublas", false, oneDevice},
	{"libcublas", [2]int{12, 13}, "cublas", false, oneDevice},
	{"libcusparse", [2]int{12, 12}, "cusparse", false, never},
	{"libcusolver", [2]int{11, 12}, "cusolver", false, never},
	{"libcufft", [2]int{11, 12}, "cufft", false, never},
	{"libcupti", [2]int{12, 13}, "cuda_cupti", false, never},
	{"libnccl", [2]int{2, 2}, "nccl", true, replicas},
	{"libnvshmem_host", [2]int{3, 3}, "nvshmem", true, never},
	{"libcudnn", [2]int{9, 9}, "cudnn", true, oneDevice},
}

// oldestRelease is the CUDA release to which the first version of each pair belongs.
const oldestRelease = 12

// releaseOf returns a plugin's CUDA release, taken from its path; 0 if the path names no release,
// or one whose libraries are not listed here.
func releaseOf(plugin string) int {
	m := regexp.MustCompile(`cuda(1[23])(\b|_)`).FindStringSubmatch(plugin)
	if m == nil {
		return 0
	}
	release, _ := strconv.Atoi(m[1])
	return release
}

// A loader loads a shared library by its path, or by name from the system's search path.
type loader func(path string) error

// loadLibraries loads NVIDIA's libraries for a plugin, from Python packages beside it if possible,
// else from the system. The error names each missing library that a run on count GPUs requires;
// warn is called for each whose absence makes a run slower.
func loadLibraries(
	plugin string, count int, load loader, warn func(message string, details ...any),
) error {
	release := releaseOf(plugin)
	if release == 0 {
		return nil // only the libraries of NVIDIA's own plugin are known
	}
	var failed []error
	for _, l := range cudaLibraries {
		err := l.load(plugin, release, load)
		switch {
		case err == nil || l.needed == never || l.needed == replicas && count < 2:
		case l.needed == attention:
			warn("a library of CUDA is missing: cuDNN cannot fuse attention without it, "+
				"which takes more time and memory", "reason", err)
		default:
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// load loads the library. Its error distinguishes a missing file from one that cannot be loaded.
func (l cudaLibrary) load(plugin string, release int, load loader) error {
	folder, suffix := l.folder, ""
	if release > oldestRelease && !l.apart {
		folder = fmt.Sprintf("cu%d", release)
	} else {
		suffix = fmt.Sprintf("-cu%d", release)
	}
	install := "`pip install nvidia-" + strings.ReplaceAll(l.folder, "_", "-") + suffix + "`"
	name := fmt.Sprintf("%s.so.%d", l.file, l.soname[release-oldestRelease]) // as XLA opens it
	// JAX's plugin is two directories below site-packages, which contains the directory nvidia.
	// go-xla installs the plugin and nvidia in the same directory.
	directory := filepath.Dir(plugin)
	site := filepath.Join(directory, "../..", "nvidia", folder, "lib")
	for _, above := range []string{"../..", "..", "."} {
		path := filepath.Join(directory, above, "nvidia", folder, "lib", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := load(path); err != nil {
			return fmt.Errorf("%s does not load (%w): `pip install --force-reinstall` of its package, or %s",
				path, err, install)
		}
		return nil
	}
	if err := load(name); err != nil {
		return fmt.Errorf("%s is missing: %s brings it; looked in %s, in LD_LIBRARY_PATH, "+
			"and in the system's directories", name, install, site)
	}
	return nil
}

// checkPluginFile returns an error for a file that is not a PJRT plugin for this machine, because
// the errors of the system's loader are hard to understand.
func checkPluginFile(path string) error {
	file, err := elf.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("PJRT plugin: %w", err)
	} else if err != nil {
		return fmt.Errorf("PJRT plugin %s is not a shared library, or is truncated (%w): "+
			"install it again, or set %s to another", path, err, PluginPathVariable)
	}
	defer file.Close()
	if own := machines[runtime.GOARCH]; own != 0 && file.Machine != own {
		return fmt.Errorf("PJRT plugin %s is for another processor (%s, this one is %s): "+
			"install the one for this machine", path, file.Machine, own)
	}
	symbols, err := file.DynamicSymbols()
	if err == nil && !slices.ContainsFunc(symbols, func(s elf.Symbol) bool {
		return s.Name == "GetPjrtApi" && s.Section != elf.SHN_UNDEF
	}) {
		return fmt.Errorf("%s is not a PJRT plugin: it is a library without the function GetPjrtApi; %s",
			path, getCUDA)
	}
	return nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// A driverState holds what NVIDIA's driver reports about itself.
type driverState struct {
	Missing string // why its library does not load; empty if it does
	Version int    // newest CUDA version that it supports, 1000 × major + 10 × minor; 0 if unknown
	Status  int    // error code of its initialization; 0 if none
	Text    string // the driver's message for Status
	Devices int    // GPUs that the program may use
}

// Driver error codes, from the CUDA reference for the type CUresult.
const (
	driverNoDevice  = 100
	driverBadDevice = 101
)

// neededDriver maps a CUDA release to the oldest driver version that supports it.
var neededDriver = map[int]string{12: "525", 13: "580"}

// check returns an error, with a remedy, if the driver cannot serve a plugin. visible is the value
// of CUDA_VISIBLE_DEVICES, and limited reports whether it is set.
func (s driverState) check(plugin string, visible string, limited bool) error {
	release := releaseOf(plugin)
	switch {
	case s.Missing != "":
		return fmt.Errorf("this machine has no NVIDIA driver: libcuda.so.1 does not load (%s): "+
			"install NVIDIA's driver; a container needs `--gpus all`", s.Missing)
	case s.Version > 0 && release > 0 && s.Version < 1000*release:
		err := fmt.Errorf("NVIDIA's driver is too old: it supports CUDA %d.%d, and PJRT plugin %s is "+
			"for CUDA %d: update the driver to %s or newer",
			s.Version/1000, s.Version%1000/10, plugin, release, neededDriver[release])
		if release > oldestRelease && s.Version >= 1000*oldestRelease {
			err = fmt.Errorf("%w, or `pip uninstall jax-cuda%d-pjrt` and `pip install \"jax[cuda%d]\"`",
				err, release, oldestRelease)
		}
		return err
	case s.Status == driverNoDevice, s.Status == driverBadDevice, s.Status == 0 && s.Devices == 0:
		hidden := ""
		if limited {
			hidden = fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q, which must name GPUs that "+
				"`nvidia-smi -L` lists, by number or UUID", visible)
		}
		return fmt.Errorf("NVIDIA's driver sees no GPU: `nvidia-smi -L` lists the GPUs, and the MIG "+
			"instances where MIG is on, of which a program needs one%s", hidden)
	case s.Status != 0:
		return fmt.Errorf("NVIDIA's driver does not start: error %d (%s): `nvidia-smi` and `dmesg` "+
			"say more; restart the machine after an update of the driver", s.Status, s.Text)
	}
	return nil
}
