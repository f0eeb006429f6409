//go:build amd64 && goexperiment.simd

package matmul

// These functions execute groups of independent instructions n times, for the benchmarks.

func peakFMA256(n int)
func peakPairs256(n int)
func peakFMA512(n int)
func peakHalves512(n int)
func peakPairs512(n int)
func peakQuads512(n int)
func peakHalvesAMX(n int)
func peakQuadsAMX(n int)
