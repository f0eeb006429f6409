package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Defaults of a [LlamaConfig].
const (
	DefaultVocabulary  = 32000 // the Llama-2 tokenizer's
	DefaultNormEpsilon = 1e-5
	DefaultRopeTheta   = 10000
	DefaultInitStd     = 0.02
)

// LlamaConfig is the shape of a [Llama].
type LlamaConfig struct {
	Layers      int     // transformer blocks
	Heads       int     // attention heads; width/heads, the size of a head, must be even
	Width       int     // features of the residual stream
	Hidden      int     // features inside the feed-forward layer; 0: 8·width/3, rounded up to a multiple of 256
	Vocabulary  int     // token ids; 0: 32000
	NormEpsilon float64 // added to the mean square in RMSNorm; 0: 1e-5
	RopeTheta   float64 // base of the rotary position embedding's wavelengths; 0: 10000
	InitStd     float64 // standard deviation of weights at the start; 0: 0.02
}

// presets are the sizes of the QuEST and CAGE papers' pre-training runs, by their nominal number of parameters without
// embeddings. All have heads of 128 features.
var presets = []struct {
	name   string
	config LlamaConfig
}{
	{"30M", LlamaConfig{Layers: 6, Heads: 5, Width: 640}},
	{"50M", LlamaConfig{Layers: 7, Heads: 6, Width: 768}},
	{"100M", LlamaConfig{Layers: 8, Heads: 8, Width: 1024}},
	{"200M", LlamaConfig{Layers: 10, Heads: 10, Width: 1280}},
	{"430M", LlamaConfig{Layers: 13, Heads: 13, Width: 1664}},
	{"800M", LlamaConfig{Layers: 16, Heads: 16, Width: 2048}},
}

// LlamaPresets lists the names that [LlamaPreset] knows, smallest first.
func LlamaPresets() []string {
	var names []string
	for _, preset := range presets {
		names = append(names, preset.name)
	}
	return names
}

// LlamaPreset returns the shape of the named size, "30M" to "800M", with the defaults left to fill in.
func LlamaPreset(name string) (LlamaConfig, error) {
	for _, preset := range presets {
		if preset.name == name {
			return preset.config, nil
		}
	}
	return LlamaConfig{}, fmt.Errorf("unknown model size %q: known are %s", name, strings.Join(LlamaPresets(), ", "))
}

// WithDefaults returns the shape with every zero that has a default replaced by it.
func (c LlamaConfig) WithDefaults() LlamaConfig {
	if c.Hidden == 0 {
		const multiple = 256
		c.Hidden = (8*c.Width/3 + multiple - 1) / multiple * multiple
	}
	if c.Vocabulary == 0 {
		c.Vocabulary = DefaultVocabulary
	}
	if c.NormEpsilon == 0 {
		c.NormEpsilon = DefaultNormEpsilon
	}
	if c.RopeTheta == 0 {
		c.RopeTheta = DefaultRopeTheta
	}
	if c.InitStd == 0 {
		c.InitStd = DefaultInitStd
	}
	return c
}

// Validate reports everything that is wrong with the shape.
func (c LlamaConfig) Validate() error {
	c = c.WithDefaults()
	var errs []error
	for _, field := range []struct {
		name  string
		value int
	}{{"layers", c.Layers}, {"heads", c.Heads}, {"width", c.Width}, {"hidden", c.Hidden}, {"vocabulary", c.Vocabulary}} {
		if field.value < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, must be at least 1", field.name, field.value))
		}
	}
	if c.Heads > 0 && c.Width > 0 {
		errs = append(errs, c.validateHeads())
	}
	if !(c.NormEpsilon > 0 && c.NormEpsilon < 1) {
		errs = append(errs, fmt.Errorf("norm epsilon is %g, must be between 0 and 1", c.NormEpsilon))
	}
	if !(c.RopeTheta > 1 && c.RopeTheta <= 1e12) {
		errs = append(errs, fmt.Errorf("rope theta is %g, must be above 1 and at most 1e12", c.RopeTheta))
	}
	if !(c.InitStd > 0 && c.InitStd < 1e6) {
		errs = append(errs, fmt.Errorf("initial standard deviation is %g, must be positive", c.InitStd))
	}
	return errors.Join(errs...)
}

// validateHeads checks that heads have an even size, as the rotation of pairs needs, and names the nearest number of
// heads that would do.
func (c LlamaConfig) validateHeads() error {
	if c.Width%(2*c.Heads) == 0 {
		return nil
	}
	var possible []int
	for heads := 1; 2*heads <= c.Width; heads++ {
		if c.Width%(2*heads) == 0 {
			possible = append(possible, heads)
		}
	}
	if len(possible) == 0 {
		return fmt.Errorf("width is %d, must be even", c.Width)
	}
	distance := func(heads int) int { return max(heads-c.Heads, c.Heads-heads) }
	nearest := slices.MinFunc(possible, func(a, b int) int { return distance(a) - distance(b) })
	return fmt.Errorf("width %d does not split into %d heads of even size: the nearest number of heads that does is %d",
		c.Width, c.Heads, nearest)
}
