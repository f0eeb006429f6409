package quantize_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// rounding is a quantizer to integers of three bits, with a scale for each group or row, optionally
// of the rotated weight.
type rounding struct {
	group, block int
}

func (rounding) Describe() sdk.Description { return sdk.Description{Name: "rounding"} }

func (r rounding) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	z := r.split(r.rotate(x), site)
	scale := z.Abs().MaxRow().Scale(1.0 / 3)
	codes := z.Div(scale.Max(b.Const(1e-30))).Round().Clip(-3, 3)
	return sdk.Quantized{Value: r.rotate(codes.Mul(scale).Reshape(site.Shape...)),
		Codes: codes.Reshape(site.Shape...), Scale: scale, Grid: sdk.Integers(-3, 3, r.group)}, nil
}

// Unpack implements sdk.Packer.
func (r rounding) Unpack(
	_ *program.Builder, codes, scale program.Value, site sdk.Site,
) (program.Value, error) {
	return r.rotate(r.split(codes, site).Mul(scale).Reshape(site.Shape...)), nil
}

func (r rounding) rotate(x program.Value) program.Value {
	if r.block == 0 {
		return x
	}
	return x.Hadamard(r.block)
}

func (r rounding) split(x program.Value, site sdk.Site) program.Value {
	if r.group == 0 {
		return x
	}
	return x.Reshape(site.Shape[0], site.RowLen()/r.group, r.group)
}

// plain is a quantizer without codes.
type plain struct{}

func (plain) Describe() sdk.Description { return sdk.Description{Name: "plain"} }

func (plain) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(16).Round().Scale(1.0 / 16)}, nil
}

// zeros is a quantizer to 0.
type zeros struct{}

func (zeros) Describe() sdk.Description { return sdk.Description{Name: "zeros"} }

func (zeros) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(0)}, nil
}

const (
	vocabulary = 40
	batch      = 2
	length     = 8 // tokens of a sequence
)

// small returns a model, and a function that computes its weights on request.
func small(
	t testing.TB, kind string, layers, width int,
) (model.Language, func(string) ([]float32, error)) {
	t.Helper()
	s := architecture.Settings{Kind: kind, Layers: layers, Width: width, Heads: 2, KVHeads: 1,
		Hidden: 2 * width, Vocab: vocabulary, Context: length,
		NormEps: 1e-5, RopeTheta: 1e4, RopePairs: architecture.HalfSplit, InitStd: 0.2}
	switch kind {
	case architecture.KindGranite:
		s.EmbeddingMultiplier, s.ResidualMultiplier, s.AttentionMultiplier = 3, 0.3, 0.1
	case architecture.KindGemma2:
		s.Window, s.ScoreCap, s.LogitCap = 4, 0.5, 2
	}
	m, err := model.New(s, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.(model.Language), func(name string) ([]float32, error) {
		for _, p := range m.Params() {
			if p.Name == name {
				return p.Init(1), nil
			}
		}
		panic(name)
	}
}

// layersOf returns a number of layers that includes all kinds of layers.
func layersOf(kind string) int {
	return max(2, map[string]int{architecture.KindSmolLM3: 4, architecture.KindGemma3: 6}[kind])
}

func programs(t testing.TB, m model.Model, q sdk.Quantizer) map[string]spec.Quantizer {
	t.Helper()
	list := map[string]spec.Quantizer{}
	for _, p := range m.Params() {
		if !p.Quantized {
			continue
		}
		var err error
		if list[p.Name], err = sdk.BuildQuantizer(q,
			sdk.Site{Role: sdk.RoleWeight, Name: p.Name, Shape: p.Dims}); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func sequences(n int) (list [][]int32) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range n {
		var tokens []int32
		for range length {
			tokens = append(tokens, int32(rng.IntN(vocabulary)))
		}
		list = append(list, tokens)
	}
	return list
}

func cpu(t testing.TB) *engine.Device {
	t.Helper()
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// runBlocks quantizes a small model and returns its weights by name.
func runBlocks(
	t testing.TB, kind string, q sdk.Quantizer, s posttrain.Settings, texts int,
) map[string]*quantize.Quantized {
	t.Helper()
	m, values := small(t, kind, layersOf(kind), 32)
	out := map[string]*quantize.Quantized{}
	r := quantize.Blocks{Settings: s, Device: cpu(t), Model: m, Weights: programs(t, m, q),
		Values: fleeting(values), Sequences: sequences(texts), Batch: batch, Context: length,
		Block: func(_ int, list []*quantize.Quantized) error {
			for _, w := range list {
				out[w.Report.Name] = w
			}
			return nil
		}}
	if err := r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

// fleeting returns a function whose results are valid until its next call.
func fleeting(values func(string) ([]float32, error)) func(string) ([]float32, error) {
	var last []float32
	return func(name string) ([]float32, error) {
		for i := range last {
			last[i] = 1e9
		}
		var err error
		last, err = values(name)
		return last, err
	}
}
