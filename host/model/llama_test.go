package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/sdk/program"
)

func newLlama(s architecture.Settings) *transformer {
	s.Kind = architecture.KindLlama
	s.FillIn()
	return newTransformer(s, Options{})
}

func newOLMo2(s architecture.Settings) *transformer {
	s.Kind = architecture.KindOLMo2
	s.FillIn()
	return newTransformer(s, Options{})
}

func initial(m Model, seed uint64) [][]float32 {
	var weights [][]float32
	for _, p := range m.Params() {
		weights = append(weights, p.Init(seed))
	}
	return weights
}

var tiny = architecture.Settings{Layers: 2, Heads: 2, Width: 16, Hidden: 24, Vocab: 13}

func tiedHead(c architecture.Settings) architecture.Settings {
	c.Head = "tied"
	return c
}

// eachLanguage runs a test with a small model of every architecture, each of the sizes of tiny.
func eachLanguage(t *testing.T, test func(t *testing.T, m Language)) {
	llama3 := tiny
	llama3.KVHeads, llama3.RopePairs = 1, architecture.HalfSplit
	llama3.RopeFactor, llama3.RopeLow, llama3.RopeHigh, llama3.RopeOriginal = 8, 1, 4, 64
	qwen3 := tiny
	qwen3.Kind, qwen3.KVHeads, qwen3.HeadSize = architecture.KindQwen3, 1, 6
	qwen3.FillIn()
	qwen2 := tiny
	qwen2.Kind, qwen2.KVHeads = architecture.KindQwen2, 1
	qwen2.FillIn()
	gemma3 := tiny
	gemma3.Kind, gemma3.KVHeads, gemma3.HeadSize, gemma3.Head = architecture.KindGemma3, 1, 6, "tied"
	gemma3.FillIn()
	gemma := gemma3
	gemma.Kind, gemma.RopeTheta = architecture.KindGemma, 1e4
	smollm3 := tiny
	smollm3.Kind, smollm3.Layers = architecture.KindSmolLM3, 4
	smollm3.FillIn()
	gemma2 := gemma3 // with caps low enough to matter
	gemma2.Kind, gemma2.Window = architecture.KindGemma2, 4
	gemma2.ScoreCap, gemma2.LogitCap, gemma2.AttentionMultiplier = 0.7, 1.5, 0.3
	granite := qwen2
	granite.Kind, granite.EmbeddingMultiplier = architecture.KindGranite, 3
	granite.ResidualMultiplier, granite.LogitsScaling = 0.22, 0.4
	granite.AttentionMultiplier = 0.2
	list := map[string]Language{
		"gemma2": newTransformer(gemma2, Options{}), "granite": newTransformer(granite, Options{}),
		"gemma":   newTransformer(gemma, Options{}),
		"gemma3":  newTransformer(gemma3, Options{}),
		"smollm3": newTransformer(smollm3, Options{}),
		"qwen2":   newTransformer(qwen2, Options{}), "qwen3": newTransformer(qwen3, Options{}),
		"llama": newLlama(tiny), "llama3": newLlama(llama3), "olmo2": newOLMo2(tiny),
		"tied llama3": newLlama(tiedHead(llama3)), "tied olmo2": newOLMo2(tiedHead(tiny)),
	}
	for _, kind := range architecture.Languages { // those without settings of their own here
		if s := tiny; list[kind] == nil {
			s.Kind = kind
			s.FillIn()
			list[kind] = newTransformer(s, Options{})
		}
	}
	for name, m := range list {
		t.Run(name, func(t *testing.T) { test(t, m) })
	}
}

// TestSites checks that the model quantizes the activations at the listed sites: if all are zero,
// matrices have no gradient.
func TestSites(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 3, 5
		sites := m.ActivationSites(batch, context)
		out := evaluate(t, m, initial(m, 1), hashedTokens(0, batch*(context+1), tiny.Vocab), batch,
			func(params []program.Value, ids program.Value) []program.Value {
				return lossesAndGradients(m, params, ids, atSites(t, m, batch, context,
					func(ActivationSite) func(x program.Value) program.Value {
						return func(x program.Value) program.Value { return x.Scale(0) }
					}))
			})
		if len(sites) != 4*m.Network().Layers || sites[6].Name != "layers.1.mlp.input" ||
			sites[7].Width != tiny.Hidden {
			t.Errorf("sites are %+v", sites)
		}
		for i, p := range m.Params() {
			if p.Role == architecture.RoleMatrix &&
				slices.ContainsFunc(out[1+i], func(g float32) bool { return g != 0 }) {
				t.Errorf("%s has a gradient although its input is zero", p.Name)
			}
		}
		for _, site := range sites {
			for _, name := range site.Feeds {
				if !slices.ContainsFunc(m.Params(),
					func(p architecture.Param) bool {
						return p.Name == name && p.Quantized && p.Dims[1] == site.Width
					}) {
					t.Errorf("site %s feeds %s, which is no quantized parameter of that width", site.Name, name)
				}
			}
		}
	})
}

// TestCausality checks that a token changes the losses of itself and of later ones, never of
// earlier ones.
func TestCausality(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const context, changed = 8, 5
		losses := func(tokens []int32) []float32 {
			return evaluate(t, m, hashedWeights(m.Params()), tokens, 1,
				func(params []program.Value, ids program.Value) []program.Value {
					return []program.Value{lossesIn(m, params, ids)}
				})[0]
		}
		tokens := hashedTokens(0, context+1, tiny.Vocab)
		before := losses(tokens)
		tokens[changed] = (tokens[changed] + 1) % int32(tiny.Vocab)
		after := losses(tokens)
		for i := range context {
			// Loss i is that of token i+1.
			if same := before[i] == after[i]; same != (i+1 < changed) {
				t.Errorf("loss %d was %v and is %v after a change of token %d", i, before[i], after[i], changed)
			}
		}
	})
}

// TestLogitsAgreeWithLosses compares losses with those that follow from the logits, in float64.
func TestLogitsAgreeWithLosses(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		const batch, context = 2, 6
		weights := hashedWeights(m.Params())
		tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
		out := evaluate(t, m, weights, tokens, batch,
			func(params []program.Value, ids program.Value) []program.Value {
				loss, _ := lossAndGradients(m, params, ids)
				return []program.Value{lossesIn(m, params, ids), logitsIn(m, params, ids), loss}
			})
		mean := 0.0
		for i, got := range out[0] {
			row := out[1][i*tiny.Vocab : (i+1)*tiny.Vocab]
			total := 0.0
			for _, logit := range row {
				total += math.Exp(float64(logit))
			}
			target := tokens[i/context*(context+1)+i%context+1]
			want := math.Log(total) - float64(row[target])
			if !(math.Abs(float64(got)-want) <= 1e-5) {
				t.Errorf("loss %d is %v, the logits say %v", i, got, want)
			}
			mean += want / float64(batch*context)
		}
		if !(math.Abs(float64(out[2][0])-mean) <= 1e-5) {
			t.Errorf("mean loss is %v, the logits say %v", out[2][0], mean)
		}
	})
}

// TestInvalidIDsGiveNaN checks that ids outside the vocabulary make all losses NaN.
func TestInvalidIDsGiveNaN(t *testing.T) {
	eachLanguage(t, func(t *testing.T, m Language) {
		for _, wrong := range []int32{-1, int32(tiny.Vocab), math.MaxInt32, math.MinInt32} {
			for _, position := range []int{0, 4, 9} {
				tokens := hashedTokens(0, 10, tiny.Vocab)
				tokens[position] = wrong
				losses := evaluate(t, m, initial(m, 1), tokens, 2,
					func(params []program.Value, ids program.Value) []program.Value {
						return []program.Value{lossesIn(m, params, ids)}
					})[0]
				if slices.ContainsFunc(losses, func(loss float32) bool { return loss == loss }) {
					t.Errorf("token %d at %d: losses are %v, want NaN", wrong, position, losses)
				}
			}
		}
	})
}

// TestSameBits checks that a step that is compiled and run twice gives the same bits.
func TestSameBits(t *testing.T) {
	if testdevice.Kind() != device.CPU {
		t.Skip("only the CPU device adds up the rows of the embedding's gradient in a fixed order")
	}
	config := architecture.Settings{Layers: 3, Heads: 4, Width: 64, Vocab: 50}
	for _, m := range []Language{newLlama(config), newOLMo2(config)} {
		var first [][]float32
		for range 2 {
			out := evaluate(t, m, initial(m, 7), hashedTokens(0, 4*33, 50), 4,
				func(params []program.Value, ids program.Value) []program.Value {
					_, gradients := lossAndGradients(m, params, ids, fakeQuantizers(t, m, 4, 32))
					return gradients
				})
			if first == nil {
				first = out
			}
			for i := range out {
				if j := differs(out[i], first[i]); j >= 0 {
					t.Fatalf("gradient of %s differs at %d: %v and %v", m.Params()[i].Name, j, first[i][j],
						out[i][j])
				}
			}
		}
	}
}

// differs returns the first position at which the bits of two lists of the same length differ, -1
// for none.
func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// evaluate runs a program of the model's parameters and of tokens [batch, ...] and returns its
// outputs, flat.
func evaluate(t *testing.T, m Model, weights [][]float32, tokens []int32, batch int,
	build func(params []program.Value, ids program.Value) []program.Value) [][]float32 {
	t.Helper()
	return evaluateIn(t, device.Float32, m, weights, tokens, batch, build)
}

func evaluateIn(t *testing.T, precision device.Precision, m Model, weights [][]float32,
	tokens []int32, batch int,
	build func(params []program.Value, ids program.Value) []program.Value) [][]float32 {
	t.Helper()
	return evaluateOn(t, testdevice.Open(t, engine.Options{Precision: precision}), m, weights, tokens,
		batch, build)
}

func evaluateOn(t *testing.T, d *engine.Device, m Model, weights [][]float32, tokens []int32,
	batch int,
	build func(params []program.Value, ids program.Value) []program.Value) [][]float32 {
	t.Helper()
	var buffers []*engine.Buffer
	for i, p := range m.Params() {
		buffers = append(buffers, testdevice.Upload(t, d, weights[i], p.Dims...))
	}
	buffers = append(buffers, testdevice.Upload(t, d, tokens, batch, len(tokens)/batch))
	return teststage.Compute(t, d, m.Calls(network.Shape{}), buffers,
		func(_ *program.Builder, in []program.Value) []program.Value {
			return build(in[:len(in)-1], in[len(in)-1])
		})
}

// TestOLMo2Params checks names, order, shapes and initialization.
func TestOLMo2Params(t *testing.T) {
	m := newOLMo2(architecture.Settings{Layers: 2, Heads: 4, KVHeads: 2, Width: 16, Hidden: 24,
		Vocab: 13})
	var names []string
	for _, p := range m.Params() {
		names = append(names, p.Name)
		norm := p.Role == architecture.RoleNorm
		if norm != (p.InitStd == 0 && p.InitMean == 1) || norm == (p.InitStd == 0.02 && p.InitCut == 3) {
			t.Errorf("%s, a %s, starts with %v ± %v, cut at %v", p.Name, p.Role, p.InitMean, p.InitStd,
				p.InitCut)
		}
		if matrix := p.Role == architecture.RoleMatrix; p.Quantized != matrix || p.Decay != matrix {
			t.Errorf("%s, a %s: quantized %t, decay %t", p.Name, p.Role, p.Quantized, p.Decay)
		}
	}
	want := "embedding layers.0.attn.qkv layers.0.attn.q_norm layers.0.attn.k_norm " +
		"layers.0.attn.out layers.0.attn_norm layers.0.mlp.w1 layers.0.mlp.w2 layers.0.mlp.down " +
		"layers.0.mlp_norm"
	if got := strings.Join(names[:10], " "); got != want || names[len(names)-1] != "head" ||
		len(names) != 21 {
		t.Errorf("parameters are %q", names)
	}
	for name, dims := range map[string][]int{"layers.1.attn.qkv": {32, 16},
		"layers.1.attn.q_norm": {16}, "layers.1.attn.k_norm": {8}, "layers.1.mlp.down": {16, 24}} {
		if p := m.Params()[slices.Index(names, name)]; !slices.Equal(p.Dims, dims) {
			t.Errorf("%s has shape %v, want %v", name, p.Dims, dims)
		}
	}
}

// TestOLMo2Presets checks that sizes are those of OLMo-core, whose nominal sizes count all
// parameters but the output head, and for 50M those of the Llama.
func TestOLMo2Presets(t *testing.T) {
	// layers, heads, width, hidden, non-embedding, with the embedding
	for name, want := range map[string][6]int{
		"30M": {4, 8, 256, 768, 3_412_224, 29_102_336},
		"50M": {7, 6, 768, 2048, 49_567_488, 126_637_824},
		"60M": {8, 8, 384, 1536, 18_887_040, 57_422_208},
	} {
		preset, _ := architecture.LookupPreset(architecture.KindOLMo2, name)
		c := preset.Settings()
		n := architecture.NonEmbedding(newOLMo2(c).Params())
		if got := [6]int{c.Layers, c.Heads, c.Width, c.Hidden, n, n + c.Vocab*c.Width}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if c.NormEps != 1e-6 || c.RopeTheta != 500000 || c.RopePairs != architecture.HalfSplit ||
			c.Vocab != 100352 || c.InitStd != 0.02 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if got := strings.Join(architecture.PresetNames(architecture.KindOLMo2),
		" "); got != "30M 50M 60M" {
		t.Errorf("presets are %s", got)
	}
	if p, ok := architecture.LookupPreset(architecture.KindOLMo2, "800M"); ok {
		t.Errorf("800M is %+v", p)
	}
}

// TestOLMo2StepFLOPs compares with a count by hand, like TestStepFLOPs: there are two more gains,
// of the widths of queries and keys.
func TestOLMo2StepFLOPs(t *testing.T) {
	m := newOLMo2(architecture.Settings{Layers: 1, Heads: 2, Width: 4, Hidden: 6, Vocab: 5})
	const tokens = 2 * 7
	want := 6.0*(48+16+72+20+20)*tokens + 12*1*4*7*tokens
	if got := m.StepFLOPs(2, 7); got != want {
		t.Errorf("a step has %v operations, want %v", got, want)
	}
}
