package model

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// mix returns the SplitMix64 finalizer of (7800000+stream)·2³²+i. It determines weights and tokens
// of the reference values, which host/train/testdata/torch_reference.py computed.
func mix(stream, i int) uint64 {
	z := uint64(7800000+stream)<<32 + uint64(i)
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// hashedWeights returns the reference weights of all parameters.
func hashedWeights(params []architecture.Param) [][]float32 {
	weights := make([][]float32, len(params))
	for p, param := range params {
		mean, std := 0.0, 1.0
		switch param.Role {
		case architecture.RoleNorm:
			mean, std = param.InitMean, 0.1
		case architecture.RoleMatrix, architecture.RoleHead:
			std = 1 / math.Sqrt(float64(param.Dims[1]))
		}
		scale := std * math.Sqrt(12)
		weights[p] = make([]float32, param.Size())
		for i := range weights[p] {
			uniform := float64(mix(p, i)>>40)/(1<<24) - 0.5
			weights[p][i] = float32(mean + float64(scale*uniform))
		}
	}
	return weights
}

// hashedTokens returns the reference tokens of a step.
func hashedTokens(step, count, vocabulary int) []int32 {
	tokens := make([]int32, count)
	for i := range tokens {
		tokens[i] = int32((mix(1000+step, i) >> 40) % uint64(vocabulary))
	}
	return tokens
}

type torchGradients struct {
	Model struct {
		Layers, Heads, Width, Hidden, Vocabulary, Context, Batch int

		KeyHeads int `json:"key_heads"`
		Theta    float64
		Scaling  ropeScaling
		Tied     bool
		Window   int

		AttentionMultiplier float64 `json:"attention_multiplier"`
		EmbeddingMultiplier float64 `json:"embedding_multiplier"`
		ResidualMultiplier  float64 `json:"residual_multiplier"`
		LogitsScaling       float64 `json:"logits_scaling"`
		ScoreCap            float64 `json:"score_cap"`
		LogitCap            float64 `json:"logit_cap"`
	}
	Variants []struct {
		Quantized  bool
		Losses     []float64
		Parameters []struct {
			Name     string
			Gradient []float64
		}
	}
}

func readTorchGradients(t *testing.T, file string) torchGradients {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var reference torchGradients
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	return reference
}

// closeTo reports values that differ by more than tolerance times the largest magnitude among the
// wanted ones.
func closeTo(t *testing.T, what string, got []float32, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	largest, worst, at := 0.0, 0.0, 0
	for i := range want {
		largest = max(largest, math.Abs(want[i]))
		if difference := math.Abs(float64(got[i]) - want[i]); !(difference <= worst) {
			worst, at = difference, i
		}
	}
	if !(worst <= tolerance*largest) {
		t.Errorf("%s: element %d is %v, want %v; the difference is %.1e of the largest element", what, at,
			got[at], want[at], worst/largest)
	}
}

// torchModels are the models of the reference values.
var torchModels = []struct {
	file  string
	kind  string
	pairs architecture.Pairing
}{
	{"torch_gradients.json", architecture.KindLlama, architecture.Interleaved},
	{"torch_olmo2.json", architecture.KindOLMo2, architecture.HalfSplit},
	{"torch_llama3.json", architecture.KindLlama, architecture.HalfSplit},
	{"torch_tied_olmo2.json", architecture.KindOLMo2, architecture.HalfSplit},
	{"torch_tied_llama3.json", architecture.KindLlama, architecture.HalfSplit},
	{"torch_qwen2.json", architecture.KindQwen2, architecture.HalfSplit},
	{"torch_granite.json", architecture.KindGranite, architecture.HalfSplit},
	{"torch_gemma2.json", architecture.KindGemma2, architecture.HalfSplit},
}

// settings returns the model of reference values.
func (reference torchGradients) settings(kind string, pairs architecture.Pairing,
) architecture.Settings {
	shape := reference.Model
	config := architecture.Settings{Layers: shape.Layers, Heads: shape.Heads, KVHeads: shape.KeyHeads,
		Width: shape.Width, Hidden: shape.Hidden,
		Vocab: shape.Vocabulary, RopeTheta: shape.Theta, RopePairs: pairs, Window: shape.Window,
		AttentionMultiplier: shape.AttentionMultiplier, EmbeddingMultiplier: shape.EmbeddingMultiplier,
		ResidualMultiplier: shape.ResidualMultiplier,
		LogitsScaling:      shape.LogitsScaling, ScoreCap: shape.ScoreCap, LogitCap: shape.LogitCap}
	shape.Scaling.setIn(&config)
	if shape.Tied {
		config = tiedHead(config)
	}
	config.Kind = kind
	config.FillIn()
	return config
}

// TestGradientsMatchPyTorch compares token losses and gradients with float64 values from PyTorch,
// without quantization and with 4-bit weights and activations. The tolerance, 1e-5 of each tensor's
// largest element, allows for float32 rounding in sums of some hundred terms. The observed
// differences are below 1e-6.
func TestGradientsMatchPyTorch(t *testing.T) {
	for _, tc := range torchModels {
		reference := readTorchGradients(t, tc.file)
		shape := reference.Model
		config := reference.settings(tc.kind, tc.pairs)
		m := newTransformer(config, Options{})
		for _, variant := range reference.Variants {
			t.Run(fmt.Sprintf("%s/quantized=%t", tc.file, variant.Quantized), func(t *testing.T) {
				tokens := hashedTokens(0, shape.Batch*(shape.Context+1), shape.Vocabulary)
				out := evaluate(t, m, hashedWeights(m.Params()), tokens, shape.Batch,
					func(params []program.Value, ids program.Value) []program.Value {
						calls := map[string]*program.Call{}
						if variant.Quantized {
							calls = fakeQuantizers(t, m, shape.Batch, shape.Context)
						}
						return lossesAndGradients(m, params, ids, calls)
					})
				closeTo(t, "losses", out[0], variant.Losses, 1e-6)
				for _, parameter := range variant.Parameters {
					i := slices.IndexFunc(m.Params(),
						func(p architecture.Param) bool { return p.Name == parameter.Name })
					if i < 0 {
						t.Fatalf("there is no parameter %s", parameter.Name)
					}
					closeTo(t, parameter.Name, out[1+i], parameter.Gradient, 1e-5)
				}
				if !variant.Quantized && len(variant.Parameters) != len(m.Params()) {
					t.Errorf("%d parameters, want %d", len(m.Params()), len(variant.Parameters))
				}
			})
		}
	}
}
