//go:build goexperiment.simd && amd64

package engine

import (
	"simd/archsimd"

	"github.com/gomlx/compute/support/envutil"
)

// LacksSIMD reports whether this build lacks vector instructions that its architecture has.
func LacksSIMD() bool { return false }

// vectorInstructions names the vector instructions that the Go backend chooses on this processor.
// It respects the environment variables that disable them.
func vectorInstructions() string {
	allowed := func(variable string) bool {
		ok, err := envutil.ReadBool(variable, true)
		return ok && err == nil
	}
	switch {
	case archsimd.X86.AVX512() && allowed(envutil.GoBackendSIMD_AVX512):
		return "avx512"
	case archsimd.X86.AVX2() && allowed(envutil.GoBackendSIMD_AVX2):
		return "avx2"
	}
	return "none"
}
