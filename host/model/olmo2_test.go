package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
)

// TestOLMo2Params checks names, order, shapes and how they start.
func TestOLMo2Params(t *testing.T) {
	m := newOLMo2(architecture.Settings{Layers: 2, Heads: 4, KVHeads: 2, Width: 16, Hidden: 24, Vocab: 13})
	var names []string
	for _, p := range m.Params() {
		names = append(names, p.Name)
		norm := p.Role == architecture.RoleNorm
		if norm != (p.InitStd == 0 && p.InitMean == 1) || norm == (p.InitStd == 0.02 && p.InitCut == 3) {
			t.Errorf("%s, a %s, starts with %v ± %v, cut at %v", p.Name, p.Role, p.InitMean, p.InitStd, p.InitCut)
		}
		if matrix := p.Role == architecture.RoleMatrix; p.Quantized != matrix || p.Decay != matrix {
			t.Errorf("%s, a %s: quantized %t, decay %t", p.Name, p.Role, p.Quantized, p.Decay)
		}
	}
	want := "embedding layers.0.attn.qkv layers.0.attn.q_norm layers.0.attn.k_norm layers.0.attn.out layers.0.attn_norm " +
		"layers.0.mlp.w1 layers.0.mlp.w2 layers.0.mlp.down layers.0.mlp_norm"
	if got := strings.Join(names[:10], " "); got != want || names[len(names)-1] != "head" || len(names) != 21 {
		t.Errorf("parameters are %q", names)
	}
	for name, dims := range map[string][]int{"layers.1.attn.qkv": {32, 16}, "layers.1.attn.q_norm": {16}, "layers.1.attn.k_norm": {8}, "layers.1.mlp.down": {16, 24}} {
		if p := m.Params()[slices.Index(names, name)]; !slices.Equal(p.Dims, dims) {
			t.Errorf("%s has shape %v, want %v", name, p.Dims, dims)
		}
	}
}

// TestOLMo2Presets: sizes are those of OLMo-core, where all parameters but the output head make the nominal number, and
// the Llama's for 50M.
func TestOLMo2Presets(t *testing.T) {
	for name, want := range map[string][6]int{ // layers, heads, width, hidden, non-embedding, with the embedding
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
		if c.NormEps != 1e-6 || c.RopeTheta != 500000 || c.RopePairs != architecture.HalfSplit || c.Vocab != 100352 || c.InitStd != 0.02 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if got := strings.Join(architecture.PresetNames(architecture.KindOLMo2), " "); got != "30M 50M 60M" {
		t.Errorf("presets are %s", got)
	}
	if p, ok := architecture.LookupPreset(architecture.KindOLMo2, "800M"); ok {
		t.Errorf("800M is %+v", p)
	}
}

// TestOLMo2StepFLOPs counts by hand, as TestStepFLOPs does: there are two more gains of the width of queries and keys.
func TestOLMo2StepFLOPs(t *testing.T) {
	m := newOLMo2(architecture.Settings{Layers: 1, Heads: 2, Width: 4, Hidden: 6, Vocab: 5})
	const tokens = 2 * 7
	want := 6.0*(48+16+72+20+20)*tokens + 12*1*4*7*tokens
	if got := m.StepFLOPs(2, 7); got != want {
		t.Errorf("a step has %v operations, want %v", got, want)
	}
}
