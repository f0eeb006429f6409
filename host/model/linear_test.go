package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/internal/testing/testdevice"
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
		build := func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			losses := m.Losses(params, ids, nil)
			return append([]*graph.Node{losses}, graph.Gradient(graph.ReduceAllMean(losses), params...)...)
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
		build := func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			loss := m.Loss(params, ids, nil)
			return append([]*graph.Node{loss}, graph.Gradient(loss, params...)...)
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

// TestCrossEntropies checks that computation at once and in chunks gives the same losses and
// gradients, and that in bfloat16 a certain prediction has a loss and gradient of 0.
func TestCrossEntropies(t *testing.T) {
	const tokens, width, vocabulary = 24, 16, 11
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int, factor float64) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(factor * rng.NormFloat64())
		}
		return values
	}
	h, head := random(tokens*width, 1), random(vocabulary*width, 1)
	targets := make([]int32, tokens)
	for i := range targets {
		targets[i] = int32(rng.IntN(vocabulary))
	}
	type variant func(h, head, targets *graph.Node) *graph.Node
	evaluate := func(f variant, precision device.Precision, h []float32) [][]float32 {
		d := testdevice.Open(t, engine.Options{Precision: precision})
		buffers := []*engine.Buffer{testdevice.Upload(t, d, h, tokens, width),
			testdevice.Upload(t, d, head, vocabulary, width), testdevice.Upload(t, d, targets, tokens)}
		return testdevice.Evaluate(t, d, buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			losses := f(in[0], in[1], in[2])
			return append([]*graph.Node{losses}, graph.Gradient(graph.ReduceAllSum(losses), in[:2]...)...)
		})
	}
	atOnce := func(h, w, targets *graph.Node) *graph.Node {
		return crossEntropy(1, h, outputHead{w: w}, targets)
	}
	inChunks := func(h, w, targets *graph.Node) *graph.Node {
		return crossEntropy(4, h, outputHead{w: w}, targets)
	}
	chunks, whole := evaluate(inChunks, device.Float32, h), evaluate(atOnce, device.Float32, h)
	for i, what := range []string{"losses", "gradient of h", "gradient of the head"} {
		if d := engine.Distance(chunks[i], whole[i]); !(d < 1e-6) {
			t.Errorf("%s: the relative difference is %.2g", what, d)
		}
	}
	for i, target := range targets { // certain predictions
		for j := range width {
			h[i*width+j] = 100 * head[int(target)*width+j]
		}
	}
	for i, values := range evaluate(atOnce, device.BFloat16, h) {
		for j, v := range values {
			if v != 0 {
				t.Fatalf("output %d of certain predictions: element %d is %g, want 0", i, j, v)
			}
		}
	}
}

// TestSources checks that the programs by which kernels compute norms and gates agree with graphs.
func TestSources(t *testing.T) {
	const rows, width, epsilon = 6, 20, 1e-5
	rng := rand.New(rand.NewPCG(8, 9))
	d := testdevice.Open(t, engine.Options{})
	upload := func(dims ...int) *engine.Buffer {
		n := 1
		for _, d := range dims {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(3 * rng.NormFloat64())
		}
		return testdevice.Upload(t, d, values, dims...)
	}
	buffers := []*engine.Buffer{upload(rows, width), upload(rows, width), upload(rows, width),
		upload(width)}
	pairs := []string{"gate", "adjoint of a", "adjoint of b", "GELU", "its adjoint of a",
		"its adjoint of b", "norm", "adjoint of x", "adjoint of the gain"}
	found := testdevice.Evaluate(t, d, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		a, b, dy, gain := in[0], in[1], in[2], in[3]
		forward, backward := kernels.GatePrograms("silu", lower.SourceValue, []int{rows, width})
		var got, want []*graph.Node
		got = append(got, lower.Lower(g, forward, []*graph.Node{a, b})[lower.SourceValue])
		adjoints := lower.Lower(g, backward, []*graph.Node{a, b, dy})
		got = append(got, adjoints["da"], adjoints["db"])
		y := swiGLU(a, b)
		want = append(want, y)
		want = append(want, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, b)...)

		y = geGLU(a, b)
		got = append(append(got, y), graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, b)...)
		inner := graph.MulScalar(graph.Add(a, graph.MulScalar(graph.Mul(a, graph.Square(a)), 0.044715)),
			math.Sqrt(2/math.Pi))
		y = graph.Mul(graph.Mul(graph.MulScalar(a, 0.5), graph.OnePlus(graph.Tanh(inner))), b)
		want = append(append(want, y), graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, b)...)

		source := normSource(a, gain, epsilon, nil)
		out := lower.Lower(g, source.Forward, source.Inputs)
		got = append(got, out[lower.SourceValue])
		got = append(got, source.Adjoint(out, dy)...)
		y = rmsNorm(a, gain, epsilon)
		want = append(want, y)
		want = append(want, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, gain)...)
		return append(got, want...)
	})
	for i, what := range pairs {
		if d := engine.Distance(found[i], found[len(pairs)+i]); !(d < 1e-6) {
			t.Errorf("%s: the relative difference is %.2g", what, d)
		}
	}
}
