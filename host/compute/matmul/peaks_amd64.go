//go:build amd64 && goexperiment.simd

package matmul

import "golang.org/x/sys/cpu"

func processorPeaks() []Peak {
	x := &cpu.X86
	var all []Peak
	add := func(has bool, instruction string, products int, run func(n int)) {
		if has {
			all = append(all, Peak{instruction, peakGroup * products * 2, func(n int) {
				if n > 0 {
					run(n)
				}
			}})
		}
	}
	add(x.HasAVX2 && x.HasFMA, "VFMADD231PS 256", 8, peakFMA256)
	add(x.HasAVX2, "VPMADDWD, VPADDD 256", 16, peakPairs256)
	add(x.HasAVX2, "VPMADDUBSW, VPADDW 256", 32, peakQuads256)
	add(x.HasAVX512F, "VFMADD231PS 512", 16, peakFMA512)
	add(x.HasAVX512F && x.HasAVX512BF16, "VDPBF16PS 512", 32, peakHalves512)
	add(x.HasAVX512F && x.HasAVX512VNNI, "VPDPWSSD 512", 32, peakPairs512)
	add(x.HasAVX512F && x.HasAVX512VNNI, "VPDPBUSD 512", 64, peakQuads512)
	add(amx() != nil, "TDPBF16PS", 16*16*32, peakHalvesAMX)
	add(amx() != nil, "TDPBSSD", 16*16*64, peakQuadsAMX)
	return all
}

const peakGroup = 12

func peakFMA256(n int)
func peakPairs256(n int)
func peakQuads256(n int)
func peakFMA512(n int)
func peakHalves512(n int)
func peakPairs512(n int)
func peakQuads512(n int)
func peakHalvesAMX(n int)
func peakQuadsAMX(n int)
