package model

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// BenchmarkStep measures the loss and all gradients, without an optimizer, in full precision and
// with 4-bit weights and activations.
func BenchmarkStep(b *testing.B) {
	for _, shape := range []struct {
		config         architecture.Settings
		context, batch int
	}{
		{architecture.Settings{Layers: 4, Heads: 4, Width: 256, Vocab: 256}, 256, 8},
		{architecture.Settings{Layers: 2, Heads: 4, Width: 128, Vocab: 256}, 256, 8},
	} {
		for _, quantized := range []bool{false, true} {
			name := fmt.Sprintf("layers=%d/width=%d/quantized=%t", shape.config.Layers, shape.config.Width,
				quantized)
			b.Run(name, func(b *testing.B) {
				benchmarkStep(b, shape.config, shape.context, shape.batch, quantized)
			})
		}
	}
}

func benchmarkStep(b *testing.B, config architecture.Settings, context, batch int, quantized bool) {
	m := newLlama(config)
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	specs := []engine.Spec{{Name: "tokens", Shape: shapes.Make(dtypes.Int32, batch, context+1)}}
	tokens, err := engine.Upload(d, hashedTokens(0, batch*(context+1), config.Vocab), batch, context+1)
	if err != nil {
		b.Fatal(err)
	}
	inputs := []*engine.Buffer{tokens}
	for _, p := range m.Params() {
		buffer, err := engine.Upload(d, p.Init(1), p.Dims...)
		if err != nil {
			b.Fatal(err)
		}
		specs = append(specs, engine.Spec{Name: p.Name, Shape: buffer.Shape()})
		inputs = append(inputs, buffer)
	}
	step, err := d.Compile("step", specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		params, q := in[1:], ActivationQuantizer(nil)
		if quantized {
			params, q = fakeQuantizeAll(m, params)
		}
		loss := m.Loss(params, in[0], q)
		return append(graph.Gradient(loss, in[1:]...), loss)
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		outputs, err := step.Run(inputs, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := engine.FinalizeAll(outputs...); err != nil {
			b.Fatal(err)
		}
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(m.StepFLOPs(batch, context)/seconds/1e9, "GFLOP/s")
}

// fakeQuantize quantizes x with 4-bit QuEST (Panferov et al., 2025) in blocks of up to 128 rotated
// coordinates, a typical load of a quantizer in a step.
func fakeQuantize(x *graph.Node) *graph.Node {
	const clip, lowest, highest = 2.370255550006294, -8, 7
	rows, width := x.Shape().Dim(0), x.Shape().Dim(1)
	block := min(width&-width, 128)
	h := sylvester(x.Graph(), block)
	tables := func(x *graph.Node) *graph.Node {
		return graph.Reshape(matMul(graph.Reshape(x, rows*width/block, block), h), rows, width)
	}
	z := tables(x)
	scale := graph.MulScalar(graph.Sqrt(graph.ReduceAndKeep(graph.Square(z), graph.ReduceMean, -1)),
		clip/highest)
	r := graph.Div(z, scale)
	code := graph.ClipScalar(graph.Round(r), lowest, highest)
	mask := graph.Equal(graph.ClipScalar(r, lowest-0.5, highest+0.5), r)
	return engine.Custom(tables(graph.Mul(code, scale)), []*graph.Node{x},
		func(dy *graph.Node) []*graph.Node {
			return []*graph.Node{
				tables(graph.Where(mask, tables(dy), graph.ScalarZero(x.Graph(), x.DType())))}
		})
}

// sylvester returns the Hadamard matrix of order n, normalized to be its own inverse.
func sylvester(g *graph.Graph, n int) *graph.Node {
	values := make([]float32, n*n)
	for i := range values {
		sign := 1 - 2*(bits.OnesCount(uint(i/n)&uint(i%n))%2)
		values[i] = float32(float64(sign) / math.Sqrt(float64(n)))
	}
	return engine.Constant(g, values, n, n)
}
