//go:build amd64 && goexperiment.simd

package matmul

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// peaks lists the multiplication instructions of this processor's tiers.
func peaks() []peak {
	x, group := &cpu.X86, 12
	all := []peak{
		{"VFMADD231PS 256", x.HasAVX2 && x.HasFMA, group * 8, peakFMA256},
		{"VPMADDWD, VPADDD 256", x.HasAVX2, group * 16, peakPairs256},
		{"VFMADD231PS 512", x.HasAVX512F, group * 16, peakFMA512},
		{"VDPBF16PS 512", x.HasAVX512F && x.HasAVX512BF16, group * 32, peakHalves512},
		{"VPDPWSSD 512", x.HasAVX512F && x.HasAVX512VNNI, group * 32, peakPairs512},
		{"VPDPBUSD 512", x.HasAVX512F && x.HasAVX512VNNI, group * 64, peakQuads512},
		{"TDPBF16PS", amx() != nil, group * 16 * 16 * 32, peakHalvesAMX},
		{"TDPBSSD", amx() != nil, group * 16 * 16 * 64, peakQuadsAMX},
	}
	return slices.DeleteFunc(all, func(p peak) bool { return !p.has })
}
