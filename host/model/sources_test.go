package model

import (
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestSources: the programs by which kernels compute norms and gates say what the graphs do.
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
	buffers := []*engine.Buffer{upload(rows, width), upload(rows, width), upload(rows, width), upload(width)}
	pairs := []string{"gate", "adjoint of a", "adjoint of b", "norm", "adjoint of x", "adjoint of the gain"}
	found := testdevice.Evaluate(t, d, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		a, b, dy, gain := in[0], in[1], in[2], in[3]
		forward, backward, err := gatePrograms(rows, width)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []*graph.Node
		got = append(got, lower.Lower(g, forward, []*graph.Node{a, b})[lower.SourceValue])
		adjoints := lower.Lower(g, backward, []*graph.Node{a, b, dy})
		got = append(got, adjoints["da"], adjoints["db"])
		y := swiGLU(a, b)
		want = append(want, y)
		want = append(want, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, b)...)

		source := normSource(a, gain, epsilon)
		out := lower.Lower(g, source.Forward, source.Inputs)
		got = append(got, out[lower.SourceValue])
		got = append(got, source.Adjoint(out, dy)...)
		y = rmsNorm(a, gain, epsilon)
		want = append(want, y)
		want = append(want, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, dy)), a, gain)...)
		return append(got, want...)
	})
	for i, what := range pairs {
		if d := relativeDistance(found[i], found[len(pairs)+i]); !(d < 1e-6) {
			t.Errorf("%s: the relative difference is %.2g", what, d)
		}
	}
}
