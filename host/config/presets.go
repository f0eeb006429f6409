package config

// Preset is a named model size with the training settings that go with it.
// The sizes and rates are those of the QuEST and CAGE pre-training runs
// (Panferov et al. 2025 and the CAGE paper): about 100 training tokens for
// each parameter outside the embeddings, 262,144 tokens per step.
type Preset struct {
	Name                         string
	Layers, Heads, Width, Hidden int
	Context, Vocab               int
	Steps, Warmup                int // optimizer steps; the default warm-up of a tenth gives Warmup
	Batch, Accumulate            int
	Rate                         float64 // peak learning rate
}

// Presets returns the known presets, smallest first.
func Presets() []Preset {
	size := func(name string, layers, heads, width, hidden, steps, warmup int, rate float64) Preset {
		return Preset{Name: name, Layers: layers, Heads: heads, Width: width, Hidden: hidden,
			Context: 512, Vocab: 32000, Steps: steps, Warmup: warmup,
			Batch: 64, Accumulate: 8, Rate: rate}
	}
	return []Preset{
		size("30M", 6, 5, 640, 1792, 11_444, 1_144, 1.2e-3),
		size("50M", 7, 6, 768, 2048, 19_073, 1_907, 1.2e-3),
		size("100M", 8, 8, 1024, 2816, 38_146, 3_814, 6e-4),
		size("200M", 10, 10, 1280, 3584, 76_293, 7_629, 3e-4),
		size("430M", 13, 13, 1664, 4608, 164_031, 16_403, 1.5e-4),
		size("800M", 16, 16, 2048, 5632, 305_175, 30_517, 7.5e-5),
	}
}

// LookupPreset returns the preset of that name.
func LookupPreset(name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// Parameters counts the parameters outside the embedding and the output head:
// attention, feed-forward and norm weights.
func (p Preset) Parameters() int {
	block := 4*p.Width*p.Width + 3*p.Width*p.Hidden + 2*p.Width
	return p.Layers*block + p.Width
}

// SwiGLUHidden is the default feed-forward width: 8/3 of the model's width,
// rounded down to an integer and then up to a multiple of 256.
func SwiGLUHidden(width int) int {
	return (8*width/3 + 255) / 256 * 256
}

func presetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}
