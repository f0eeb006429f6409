package assembly

import (
	"testing"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/model"
)

// TestPresetsAgree: the configuration's table of sizes and the model's are the same.
func TestPresetsAgree(t *testing.T) {
	for _, p := range config.Presets() {
		want, err := model.LlamaPreset(p.Name)
		if err != nil {
			t.Errorf("the model does not know the preset %s: %v", p.Name, err)
			continue
		}
		want = want.WithDefaults()
		if p.Layers != want.Layers || p.Heads != want.Heads || p.Width != want.Width || p.Hidden != want.Hidden {
			t.Errorf("%s: the configuration has %+v, the model %+v", p.Name, p, want)
		}
	}
	if got, want := len(config.Presets()), len(model.LlamaPresets()); got != want {
		t.Errorf("the configuration has %d presets, the model %d", got, want)
	}
}

// TestModelTakesEverySize: no key of the table [model] is lost on the way.
func TestModelTakesEverySize(t *testing.T) {
	cfg := &config.Config{Model: config.Model{Kind: "llama", Layers: 1, Width: 8, Heads: 2, Hidden: 16, Vocab: 11, Context: 4, RopeTheta: 500, NormEps: 1e-6, InitStd: 0.5}}
	m, err := Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := model.LlamaConfig{Layers: 1, Width: 8, Heads: 2, Hidden: 16, Vocabulary: 11, RopeTheta: 500, NormEpsilon: 1e-6, InitStd: 0.5}
	if got := m.(*model.Llama).Config(); got != want {
		t.Errorf("the model is %+v, want %+v", got, want)
	}
	if got := m.Params()[0].InitStd; got != 0.5 {
		t.Errorf("the embedding starts with standard deviation %v, want 0.5", got)
	}
}
