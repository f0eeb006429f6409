package quantize_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testmodel"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// activations returns the inputs of all layers, by weight, for all sequences at once, computed with
// the whole model with some weights replaced.
func activations(
	t *testing.T, kind string, texts int, replaced map[string][]float32,
) map[string][]float32 {
	return activationsOf(t, kind, layersOf(kind), texts, replaced, "nothing")
}

// activationsOf is like activations, for the given number of layers. Activations at sites whose
// names have the prefix zeros are 0.
func activationsOf(
	t *testing.T, kind string, layers, texts int, replaced map[string][]float32, zeros string,
) map[string][]float32 {
	t.Helper()
	m, values := small(t, kind, layers, 32)
	dev := cpu(t)
	var in []*engine.Buffer
	for _, p := range m.Params() {
		data := replaced[p.Name]
		if data == nil {
			data, _ = values(p.Name)
		}
		b, err := engine.Upload(dev, data, p.Dims...)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, b)
	}
	tokens, err := engine.Upload(dev, slices.Concat(sequences(texts)...), texts, length)
	if err != nil {
		t.Fatal(err)
	}
	out := teststage.Compute(t, dev, m.Calls(network.Shape{}), append(in, tokens),
		func(_ *program.Builder, in []program.Value) []program.Value {
			ids := in[len(in)-1]
			target := ids.At(1, 0, 1) // any one
			return testmodel.Activations(m, in[:len(in)-1], ids.Concatenate(1, target),
				func(site string) bool { return strings.HasPrefix(site, zeros) })
		})
	list := map[string][]float32{}
	for i, data := range out {
		for _, name := range m.ActivationSites(texts, length)[i].Feeds {
			list[name] = data
		}
	}
	return list
}

// TestActivations checks that each block uses the quantizers of its own activations.
func TestActivations(t *testing.T) {
	const texts = 4
	m, values := small(t, architecture.KindLlama, 3, 32)
	for _, prefix := range []string{"nothing", "layers.0.", "layers.1.", "layers.2."} {
		quantized := map[string]spec.Quantizer{}
		for _, s := range m.ActivationSites(batch, length) {
			if !strings.HasPrefix(s.Name, prefix) {
				continue
			}
			p, err := sdk.BuildQuantizer(zeros{},
				sdk.Site{Role: sdk.RoleActivation, Name: s.Name, Shape: []int{batch * length, s.Width}})
			if err != nil {
				t.Fatal(err)
			}
			quantized[s.Name] = p
		}
		got, replaced := map[string]posttrain.Matrix{}, map[string][]float32{}
		r := quantize.Blocks{Settings: posttrain.Settings{Method: posttrain.RTN}, Device: cpu(t),
			Model: m, Weights: programs(t, m, plain{}), Activations: quantized,
			Values: fleeting(values), Sequences: sequences(texts), Batch: batch, Context: length,
			Block: func(_ int, list []*quantize.Quantized) error {
				for _, w := range list {
					got[w.Report.Name], replaced[w.Report.Name] = w.Report, slices.Clone(w.Value)
				}
				return nil
			}}
		if err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := activationsOf(t, architecture.KindLlama, 3, texts, replaced, prefix)
		for _, p := range m.Params() {
			if report, ok := got[p.Name]; ok {
				w, _ := values(p.Name)
				want := outputError(w, replaced[p.Name], x[p.Name], p.Dims[1])
				if (want == 0) != strings.HasPrefix(p.Name, prefix) ||
					math.Abs(report.OutputError-want) > 1e-4*want {
					t.Errorf("zeros in %s: %s: reported %v, want %v", prefix, p.Name, report.OutputError, want)
				}
			}
		}
	}
}
