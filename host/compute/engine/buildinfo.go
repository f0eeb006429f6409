package engine

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/loops"
)

// BuildInfo records everything that determines the rounding of a device's arithmetic. Two runs can
// be expected to agree bit for bit only if their BuildInfos are equal.
type BuildInfo struct {
	Device string `json:"device"` // kind of the device
	Go     string `json:"go"`     // version of the Go toolchain
	// Target is the operating system and processor architecture, such as linux/amd64. GOAMD64 is
	// appended if it is above v1, as in linux/amd64-v3.
	Target  string `json:"target"`
	SIMD    string `json:"simd"`              // vector instructions on the CPU: "avx512", "avx2" or "none"
	Backend string `json:"backend,omitempty"` // on GPUs: module and version of what runs programs
	GoMLX   string `json:"gomlx,omitempty"`   // in records until 2026-11, whose graphs were GoMLX's

	// Products names the types to which matrix products round their operands, if not float32:
	// "bfloat16" for products that ask for the device's precision, "tf32" for the other products. On
	// the CPU it also names kernels whose order of sums differs: "bfloat16/avx512bf16" for the
	// bfloat16 instruction, "float32/fused" for package matmul.
	Products string `json:"products,omitempty"`

	// Replicas is the number of replicas if there are several, which changes the order of sums.
	Replicas int `json:"replicas,omitempty"`
}

// String returns the fields on one line.
func (b BuildInfo) String() string {
	line := fmt.Sprintf("device=%s go=%s target=%s simd=%s", b.Device, b.Go, b.Target, b.SIMD)
	if b.Backend != "" {
		line += " backend=" + b.Backend
	}
	if b.Products != "" {
		line += " products=" + b.Products
	}
	if b.Replicas != 0 {
		line += fmt.Sprintf(" replicas=%d", b.Replicas)
	}
	return line
}

// BuildInfo describes the arithmetic of the device.
func (d *Device) BuildInfo() BuildInfo {
	versions := map[string]string{} // of the modules that are linked into the program
	built, ok := debug.ReadBuildInfo()
	if !ok {
		built = &debug.BuildInfo{}
	}
	for _, module := range built.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		versions[module.Path] = module.Version
	}
	info := BuildInfo{
		Device: d.kind,
		Go:     runtime.Version(),
		Target: runtime.GOOS + "/" + runtime.GOARCH,
		SIMD:   loops.Vectors(),

		Products: d.products(),
	}
	if d.kind == device.CUDA {
		info.Backend = "go-xla/pjrt@" + cmp.Or(versions["github.com/gomlx/go-xla"], "unknown")
	}
	for _, s := range built.Settings { // from v3 on the compiler emits fused multiply-adds
		if s.Key == "GOAMD64" && s.Value != "v1" {
			info.Target += "-" + s.Value
		}
	}
	if d.Count() > 1 {
		info.Replicas = d.Count()
	}
	return info
}

func (d *Device) products() string {
	var list []string
	tier, err := ProductTier()
	if d.options.Precision == device.BFloat16 {
		name := string(device.BFloat16)
		if d.kind == device.CPU && err == nil && tier.HasBFloat16() {
			name += "/" + tier.Name()
		}
		list = append(list, name)
	} else if err == nil && d.UsesPlans() && !tier.IsPortable() {
		list = append(list, "float32/fused")
	}
	if d.kind == device.CUDA && d.options.TF32 {
		list = append(list, "tf32")
	}
	return strings.Join(list, "+")
}
