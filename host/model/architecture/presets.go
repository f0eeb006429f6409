package architecture

import "slices"

// Preset is a named model size with its training settings. The sizes and rates of the Llamas are
// from the QuEST and CAGE pre-training runs (Panferov et al. 2025 and the CAGE paper): about 100
// training tokens for each parameter outside the embeddings, 262,144 tokens per step. 1700M and
// 3200M are only in the training script of QuEST's code (train.sh), with 10.75 and 20 billion
// tokens. The OLMo2 sizes 30M and 60M are from OLMo-core, whose names include the embedding. The
// OLMo2 size 50M is for the CAGE paper's comparison of optimizers, which does not publish its
// shape; it is shaped like the Llama. OLMo2 models are trained like the Llamas, on 100 tokens for
// each parameter counted in the name.
type Preset struct {
	Kind, Name                   string
	Layers, Heads, Width, Hidden int
	Context, Vocab               int
	Steps, Warmup                int // optimizer steps; the default warm-up of a tenth gives Warmup
	Batch, Accumulate            int
	Rate                         float64 // peak learning rate
}

// Presets returns the known presets of each kind of model, smallest first.
func Presets() []Preset {
	kind, vocab := KindLlama, 32000
	size := func(name string, layers, heads, width, hidden, steps, warmup int, rate float64) Preset {
		return Preset{Kind: kind, Name: name, Layers: layers, Heads: heads, Width: width, Hidden: hidden,
			Context: 512, Vocab: vocab, Steps: steps, Warmup: warmup,
			Batch: 64, Accumulate: 8, Rate: rate}
	}
	llamas := []Preset{
		size("30M", 6, 5, 640, 1792, 11_444, 1_144, 1.2e-3),
		size("50M", 7, 6, 768, 2048, 19_073, 1_907, 1.2e-3),
		size("100M", 8, 8, 1024, 2816, 38_146, 3_814, 6e-4),
		size("200M", 10, 10, 1280, 3584, 76_293, 7_629, 3e-4),
		size("430M", 13, 13, 1664, 4608, 164_031, 16_403, 1.5e-4),
		size("800M", 16, 16, 2048, 5632, 305_175, 30_517, 7.5e-5),
		size("1700M", 20, 21, 2688, 7168, 41_007, 4_100, 3.75e-5),
		size("3200M", 28, 24, 3072, 8192, 76_293, 7_629, 7.5e-5),
	}
	kind, vocab = KindOLMo2, 100352 // OLMo2's 100278, padded to a multiple of 128
	return append(llamas,
		size("30M", 4, 8, 256, 768, 11_444, 1_144, 1.2e-3),
		size("50M", 7, 6, 768, 2048, 19_073, 1_907, 1.2e-3),
		size("60M", 8, 8, 384, 1536, 22_888, 2_288, 1.2e-3))
}

// LookupPreset returns the preset with that name for a kind of model.
func LookupPreset(kind, name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Kind == kind && p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// Settings returns the settings of the model.
func (p Preset) Settings() Settings {
	s := Settings{Kind: p.Kind, Preset: p.Name, Layers: p.Layers, Heads: p.Heads, Width: p.Width,
		Hidden: p.Hidden, Context: p.Context, Vocab: p.Vocab}
	s.FillIn()
	return s
}

// Parameters counts the parameters outside the embedding and the output head.
func (p Preset) Parameters() int {
	return NonEmbedding(p.Settings().Params())
}

// Values returns the preset's values for absent keys, by full key such as model.layers. An empty
// preset has none.
func (p Preset) Values() map[string]any {
	if p.Name == "" {
		return nil
	}
	return map[string]any{
		"model.layers": p.Layers, "model.heads": p.Heads, "model.width": p.Width,
		"model.hidden":  p.Hidden,
		"model.context": p.Context, "model.vocab": p.Vocab,
		"train.steps": p.Steps, "train.batch": p.Batch, "train.accumulate": p.Accumulate,
		"schedule.rate": p.Rate,
	}
}

// PresetNames lists the distinct names of the presets of the given kinds of models.
func PresetNames(kinds ...string) []string {
	var names []string
	for _, p := range Presets() {
		if slices.Contains(kinds, p.Kind) && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}
