package assembly

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/model"
)

// TestPresetsAgree: the configuration's table of sizes and the model's are the same.
func TestPresetsAgree(t *testing.T) {
	for _, p := range config.Presets() {
		want, err := model.LlamaPreset(p.Name)
		if p.Kind == config.KindOLMo2 {
			var olmo2 model.OLMo2Config
			olmo2, err = model.OLMo2Preset(p.Name)
			want = model.LlamaConfig(olmo2.WithDefaults())
		}
		if err != nil {
			t.Errorf("the model does not know the %s preset %s: %v", p.Kind, p.Name, err)
			continue
		}
		want = want.WithDefaults()
		if p.Vocab != want.Vocabulary || p.Layers != want.Layers || p.Heads != want.Heads || p.Width != want.Width || p.Hidden != want.Hidden {
			t.Errorf("%s: the configuration has %+v, the model %+v", p.Name, p, want)
		}
	}
	if got, want := len(config.Presets()), len(model.LlamaPresets())+len(model.OLMo2Presets()); got != want {
		t.Errorf("the configuration has %d presets, the model %d", got, want)
	}
}

// TestModelTakesEveryKey: no key of the table [model] is lost on the way.
func TestModelTakesEveryKey(t *testing.T) {
	cfg := config.Model{Layers: 1, Width: 8, Heads: 2, KVHeads: 1, Hidden: 16, Vocab: 11, Context: 4, RopeTheta: 500, RopePairs: "half",
		RopeFactor: 8, RopeLow: 2, RopeHigh: 3, RopeOriginal: 64, NormEps: 1e-6, InitStd: 0.5, Head: "tied"}
	want := model.LlamaConfig{Layers: 1, Width: 8, Heads: 2, KeyHeads: 1, Hidden: 16, Vocabulary: 11, RopeTheta: 500, RopePairs: model.HalfSplit,
		RopeScaling: &model.RopeScaling{Factor: 8, Low: 2, High: 3, Original: 64}, NormEpsilon: 1e-6, InitStd: 0.5, TiedHead: true}
	for _, kind := range []string{config.KindLlama, config.KindOLMo2} {
		cfg.Kind = kind
		m, err := Model(&config.Config{Model: cfg})
		if err != nil {
			t.Fatal(err)
		}
		var got model.LlamaConfig
		switch m := m.(type) {
		case *model.Llama:
			got = m.Config()
		case *model.OLMo2:
			got = model.LlamaConfig(m.Config())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		if got := m.Params()[0].InitStd; got != 0.5 {
			t.Errorf("the embedding starts with standard deviation %v, want 0.5", got)
		}
	}
}

// TestProblemTakesEveryKey is the same for problems without data.
func TestProblemTakesEveryKey(t *testing.T) {
	cfg := config.Model{Kind: config.KindQuadratic, Rows: 2, Dimension: 1, Condition: 3, Spectrum: []float64{2}, Optimum: []float64{1, 2},
		Start: []float64{3, 4}, StartStd: 5, Noise: 6, ProblemSeed: 7}
	want := model.QuadraticConfig{Rows: 2, Dimension: 1, Condition: 3, Spectrum: []float64{2}, Optimum: []float64{1, 2},
		Start: []float64{3, 4}, StartStd: 5, Noise: 6, Seed: 7}
	for range 2 {
		m, err := Model(&config.Config{Model: cfg})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, m.(*model.Quadratic).Config()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cfg.Kind, diff)
		}
		cfg = config.Model{Kind: config.KindToy, Start: []float64{3}, StartStd: 5, Noise: 6}
		want = model.ToyConfig()
		want.Start, want.StartStd, want.Noise = cfg.Start, cfg.StartStd, cfg.Noise
	}
	if _, err := Model(&config.Config{Model: config.Model{Kind: "mamba"}}); err == nil {
		t.Error("there is a model of kind mamba")
	}
}
