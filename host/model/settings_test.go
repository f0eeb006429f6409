package model

import (
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
)

// TestSettingsCheck: what keys say together is checked where the model is.
func TestSettingsCheck(t *testing.T) {
	llama := architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 48, Heads: 3, RopeLow: 1, RopeHigh: 4}
	quadratic := architecture.Settings{Kind: architecture.KindQuadratic, Rows: 2, Dimension: 3}
	for _, c := range []struct {
		settings architecture.Settings
		change   func(*architecture.Settings)
		want     string // the key with a problem; "" for none
	}{
		{llama, func(*architecture.Settings) {}, ""},
		{llama, func(s *architecture.Settings) { s.Heads = 5 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.Heads = 48 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.Heads, s.Width = 1, 47 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.Heads = 0 }, ""}, // which is missing, and reported as that
		{llama, func(s *architecture.Settings) { s.Width = 47 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.KVHeads = 3 }, ""},
		{llama, func(s *architecture.Settings) { s.KVHeads = 2 }, "model.kv_heads"},
		{llama, func(s *architecture.Settings) { s.RopeLow = 4 }, "model.rope_high"},
		{llama, func(s *architecture.Settings) { s.Preset, s.Layers, s.Heads, s.Width = "30M", 6, 5, 640 }, ""},
		{llama, func(s *architecture.Settings) { s.Preset, s.Layers, s.Heads, s.Width = "30M", 7, 5, 640 }, "model.layers"},
		{quadratic, func(*architecture.Settings) {}, ""},
		{quadratic, func(s *architecture.Settings) { s.Spectrum = []float64{1} }, "model.spectrum"},
		{quadratic, func(s *architecture.Settings) { s.Optimum = make([]float64, 3) }, "model.optimum"},
		{quadratic, func(s *architecture.Settings) { s.Start = make([]float64, 6) }, ""},
		{quadratic, func(s *architecture.Settings) { s.Kind, s.Start = architecture.KindToy, make([]float64, 6) }, "model.start"},
	} {
		s := c.settings
		c.change(&s)
		problems := s.Check()
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || problems[0].Key != c.want) {
			t.Errorf("%+v: %+v, want a problem of %q", s, problems, c.want)
		}
	}
}
