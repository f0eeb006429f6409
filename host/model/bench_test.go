package model

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
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
	s := stage.Stage{Name: "step", Calls: m.Calls(network.Shape{})}
	t := stage.Tensors{}
	defer func() { t.Finalize() }()
	add := func(name string, buffer *engine.Buffer, err error) {
		if err != nil {
			b.Fatal(err)
		}
		t[name] = buffer
		s.Inputs = append(s.Inputs, engine.Spec{Name: name, Shape: buffer.Shape()})
	}
	ids := hashedTokens(0, batch*(context+1), config.Vocab)
	tokens, err := engine.Upload(d, ids, batch, context+1)
	add(network.Tokens, tokens, err)
	for _, p := range m.Params() {
		buffer, err := engine.Upload(d, p.Init(1), p.Dims...)
		add(p.Name, buffer, err)
	}
	s.Write = func(_ *program.Builder, in stage.Values) stage.Values {
		var calls map[string]*program.Call
		if quantized {
			calls = fakeQuantizers(b, m, batch, context)
		}
		params := lists.Map(m.Params(), func(p architecture.Param) program.Value { return in[p.Name] })
		loss, gradients := lossAndGradients(m, params, in[network.Tokens], calls)
		out := stage.Values{"loss": loss}
		for i, p := range m.Params() {
			out["d."+p.Name] = gradients[i]
		}
		return out
	}
	step, err := s.Compile(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out := stage.Tensors{}
		if err := step.Run(out, t); err != nil {
			b.Fatal(err)
		}
		out.Finalize()
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(m.StepFLOPs(batch, context)/seconds/1e9, "GFLOP/s")
}
