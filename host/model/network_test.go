package model

import (
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// referenceRun returns the losses of a model's program, by the reference implementation, and the
// gradients of their mean with respect to its parameters.
func referenceRun(t *testing.T, s architecture.Settings, shape network.Shape, weights [][]float32,
	batch []int32, dims []int) (losses []float64, gradients [][]float64) {
	t.Helper()
	p, err := network.New(s, shape, network.Quantizers{})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{network.Tokens: reference.Ints(batch, dims...)}
	params := s.Params()
	for i, param := range params {
		values := lists.Map(weights[i], func(v float32) float64 { return float64(v) })
		in[param.Name] = reference.Floats(values, param.Dims...)
	}
	out, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	vjp, err := autodiff.VJP(p, network.Losses,
		lists.Map(params, func(p architecture.Param) string { return p.Name })...)
	if err != nil {
		t.Fatal(err)
	}
	losses = out[network.Losses].Floats
	mean := make([]float64, len(losses))
	for i := range mean {
		mean[i] = 1 / float64(len(losses))
	}
	in[autodiff.Prefix+network.Losses] = reference.Floats(mean, shape.Batch, shape.Context)
	if out, err = reference.Run(vjp, in); err != nil {
		t.Fatal(err)
	}
	return losses, lists.Map(params, func(p architecture.Param) []float64 {
		return out[autodiff.Prefix+p.Name].Floats
	})
}

// TestNetworkMatchesPyTorch compares the programs of models, in binary64, with values from PyTorch,
// which are stored with seven digits: the tolerance is half of the last one.
func TestNetworkMatchesPyTorch(t *testing.T) {
	for _, tc := range torchModels {
		t.Run(tc.file, func(t *testing.T) {
			want := readTorchGradients(t, tc.file)
			s, dims := want.settings(tc.kind, tc.pairs), []int{want.Model.Batch, want.Model.Context + 1}
			losses, gradients := referenceRun(t, s,
				network.Shape{Batch: dims[0], Context: want.Model.Context}, hashedWeights(s.Params()),
				hashedTokens(0, dims[0]*dims[1], s.Vocab), dims)
			closeTo(t, "losses", architecture.Float32s(losses), want.Variants[0].Losses, 5e-7)
			for i, p := range want.Variants[0].Parameters {
				closeTo(t, p.Name, architecture.Float32s(gradients[i]), p.Gradient, 5e-7)
			}
		})
	}
}

// TestNetworkIsTheModel compares the losses and gradients of each kind of model, and those of its
// program by package plan, with those of its program by the reference implementation, for rows that
// are one document and for rows of several.
func TestNetworkIsTheModel(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		const context = 12
		for _, documents := range []bool{false, true} {
			m := *language.(*transformer)
			m.Documents = documents
			batch, _ := packed(context, m.Vocab, rand.New(rand.NewPCG(1, 2)))
			dims := m.BatchDims(2, context)
			if !documents {
				batch = hashedTokens(0, dims[0]*dims[1], m.Vocab)
			}
			weights := hashedWeights(m.params)
			got := evaluate(t, &m, weights, batch, 2,
				func(params []program.Value, ids program.Value) []program.Value {
					return lossesAndGradients(&m, params, ids.Reshape(dims...))
				})
			shape := network.Shape{Batch: 2, Context: context, Documents: documents}
			losses, gradients := referenceRun(t, m.Settings, shape, weights, batch, dims)
			closeTo(t, "losses", got[0], losses, 1e-6)
			mean := 0.0
			for _, loss := range losses {
				mean += loss / float64(len(losses))
			}
			m.LossTokens = 6 // chunks of the loss in a plan
			planned := runPlan(t, &m, shape, weights, batch)
			closeTo(t, "loss by a plan", planned[0], []float64{mean}, 1e-6)
			for i, p := range m.params {
				closeTo(t, p.Name, got[1+i], gradients[i], 1e-5)
				closeTo(t, p.Name+" by a plan", planned[1+i], gradients[i], 1e-5)
			}
		}
	})
}

// TestLongContext checks that the tables of positions may be larger than the constants of plugins.
func TestLongContext(t *testing.T) {
	s := architecture.Settings{Kind: architecture.KindGemma3, Layers: 1, Heads: 1, Width: 16,
		HeadSize: 128, Hidden: 8, Vocab: 13}
	s.FillIn()
	if _, err := network.New(s, network.Shape{Batch: 1, Context: 1 << 16},
		network.Quantizers{}); err != nil {
		t.Error(err)
	}
}
