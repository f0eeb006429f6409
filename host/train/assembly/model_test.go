package assembly

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
)

// TestModel: the model is made from the settings, whatever its kind, and an unknown kind is refused.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		settings architecture.Settings
		dims     []int // of the first parameter
		std      float64
	}{
		{architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2, Vocab: 11, InitStd: 0.5}, []int{11, 8}, 0.5},
		{architecture.Settings{Kind: architecture.KindOLMo2, Layers: 1, Width: 8, Heads: 2, Vocab: 11, InitStd: 0.5}, []int{11, 8}, 0.5},
		{architecture.Settings{Kind: architecture.KindQuadratic, Rows: 2, Dimension: 3, Condition: 3, StartStd: 5}, []int{2, 3}, 5},
		{architecture.Settings{Kind: architecture.KindToy, StartStd: 5}, []int{1, 1}, 5},
	} {
		m, err := Model(&config.Config{Model: c.settings})
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Params()[0]; !slices.Equal(p.Dims, c.dims) || p.InitStd != c.std {
			t.Errorf("%s: the first parameter has shape %v and starts with standard deviation %v, want %v and %v",
				c.settings.Kind, p.Dims, p.InitStd, c.dims, c.std)
		}
	}
	if _, err := Model(&config.Config{Model: architecture.Settings{Kind: "mamba"}}); err == nil {
		t.Error("there is a model of kind mamba")
	}
}
