package model

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// TestBFloat16 compares losses and gradients with those of float32. Rounding to bfloat16 has
// relative errors of up to 2⁻⁹. Losses have passed about ten products, and gradients twice as many.
// The results of the first two products of a feed-forward layer are also rounded, which adds a
// tenth to the errors. So are the outputs of attention and two adjoints on the CPU: that adds a
// hundredth to the errors of the 118 tensors on average, and raises the largest from 0.034 to
// 0.036. The gradient of a gain is a sum over all tokens in which most terms cancel. Nothing is
// quantized, because such small differences move values from one grid point to the next.
func TestBFloat16(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 4, 16
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		build := func(params []program.Value, ids program.Value) []program.Value {
			return lossesAndGradients(m, params, ids)
		}
		weights := hashedWeights(m.Params())
		if last := len(weights) - 1; m.Params()[last].Name == "norm" {
			// The rows of a tied head are √width times as long as those of other heads. Logits of the same
			// size have errors of the same size.
			for i := range weights[last] {
				weights[last][i] /= float32(math.Sqrt(float64(tiny.Width)))
			}
		}
		exact := evaluateIn(t, device.Float32, m, weights, tokens, batch, build)
		rounded := evaluateIn(t, device.BFloat16, m, weights, tokens, batch, build)
		for i := range exact {
			what, limit := "losses", 0.01
			if i > 0 {
				what, limit = "gradient of "+m.Params()[i-1].Name, 0.04
				if m.Params()[i-1].Role == architecture.RoleNorm {
					limit = 0.06
				}
			}
			got := engine.Distance(rounded[i], exact[i])
			if !(got < limit) {
				t.Errorf("%s: the relative difference is %.2g, want less than %g", what, got, limit)
			}
			if got < 1e-5 {
				t.Errorf("%s: the relative difference is %.2g: the products were not rounded", what, got)
			}
		}
	})
}

// TestFusedFloat32 compares losses and gradients of cage's own products, attention and one-pass
// functions with library operations: only the order of sums differs. Nothing is quantized, as in
// [TestBFloat16].
func TestFusedFloat32(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 4, 16
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		build := func(params []program.Value, ids program.Value) []program.Value {
			return lossesAndGradients(m, params, ids)
		}
		evaluate := func(kernels device.Kernels) [][]float32 {
			return evaluateOn(t, testdevice.OpenCPU(t, engine.Options{Kernels: kernels}), m,
				hashedWeights(m.Params()), tokens, batch, build)
		}
		library, fused := evaluate(device.GraphKernels), evaluate(device.FusedKernels)
		equal := 0
		for i := range library {
			if apart := engine.Distance(fused[i], library[i]); !(apart < 1e-5) {
				t.Errorf("output %d: the relative difference is %.2g", i, apart)
			}
			if slices.Equal(fused[i], library[i]) {
				equal++
			}
		}
		if equal == len(library) {
			t.Error("all outputs have the bits of the library: it has computed both")
		}
	})
}
