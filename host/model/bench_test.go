package model

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
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
		var calls map[string]*program.Call
		if quantized {
			calls = fakeQuantizers(b, m, batch, context)
		}
		loss, gradients := lossAndGradients(m, in[1:], in[0], calls)
		return append(gradients, loss)
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
