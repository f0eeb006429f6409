package config

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/internal/plaintoml"
)

const quantized = "[quantizer.weights]\nplugin = \"quest\"\n"

// TestStrength checks that a strength is the default of the decoupled form, that λ replaces it, and
// that later settings replace earlier ones.
func TestStrength(t *testing.T) {
	lambda := func(c *Config) float64 { return c.ResolvedMethod().CAGE.Lambda }
	for _, c := range []struct {
		text      string
		overrides []string
		strength  float64 // NaN: none
	}{
		{quantized, []string{"train.steps=100"}, cage.DefaultStrength(0) / 10},
		{quantized, []string{"train.steps=2000"}, cage.DefaultStrength(0)},
		{quantized + "[method]\nlambda = 2.0\n", nil, math.NaN()},
		{quantized + "[method]\nstrength = 1.5\n", nil, 1.5},
		{quantized + "[method]\nstrength = 0\n", nil, 0},
		{quantized + "[method]\nform = \"coupled\"\n", nil, math.NaN()},
		{quantized + "[method]\nname = \"lotion\"\n", nil, math.NaN()},
		{"[method]\nstrength = 1.5\n", nil, math.NaN()}, // no weight is quantized
		{quantized + "[method]\nlambda = 2.0\n", []string{"method.strength=0.5"}, 0.5},
		{quantized + "[method]\nstrength = 1.5\n", []string{"method.lambda=2.0"}, math.NaN()},
		{quantized + "[method]\nstrength = 1.5\n", []string{"method.form=\"off\""}, math.NaN()},
		{quantized + "[method]\nstrength = 1.5\n", []string{"method.form=\"decoupled\""}, 1.5},
	} {
		cfg, err := Parse("test.toml", []byte(small+c.text), c.overrides)
		if err != nil {
			t.Errorf("%s%v: %v", c.text, c.overrides, err)
			continue
		}
		got := math.NaN()
		if s := cfg.Method.CAGE.Strength; s != nil {
			got = *s
		}
		if got != c.strength && !(math.IsNaN(got) && math.IsNaN(c.strength)) {
			t.Errorf("%s%v has the strength %v, want %v", c.text, c.overrides, got, c.strength)
		}
		pull := cfg.ResolvedMethod().CAGE.Pull(cfg.Schedule.Schedule(cfg.Train.Steps)).Strength
		if c.strength > 0 && math.Abs(pull-c.strength) > 1e-12 || c.strength == 0 && lambda(cfg) != 0 {
			t.Errorf("%s%v: λ = %v has the strength %v", c.text, c.overrides, lambda(cfg), pull)
		}
		roundTrip(t, cfg)
	}
}

func TestStrengthProblems(t *testing.T) {
	for text, want := range map[string]string{
		"[method]\nstrength = 0.5\nlambda = 2.0\n": "method.strength: found beside " +
			"method.lambda; want one of them",
		"[method]\nstrength = 0.5\nform = " +
			"\"off\"\n": `method.strength: found with method.form = "off"; leave strength out`,
		"[method]\nstrength = 0.5\nform = " +
			"\"coupled\"\n": `method.strength: found with method.form = "coupled"; want method.lambda`,
		"[method]\nstrength = -0.5\n": "method.strength: found the float -0.5; " +
			"want a number from 0 to 1000",
		"[method]\nstrength = nan\n": "method.strength: found the float nan; " +
			"want a number from 0 to 1000",
		"[method]\nname = \"lotion\"\nstrength = " +
			"0.5\n": `method.strength: a key of method.name = "cage"`,
		"[method]\nstrength = 0.5\nsilence = 0.999\n": "",
		"[method]\nsilence = 0.999999\nstrength = 0.5\n#0\n": "method.strength: found a learning rate " +
			"of 0, or nearly, in all steps of the correction; want a smaller method.silence",
		"[method]\nsilence = 0.999999\n#0\n": "", // the strength is 0 by default
		"[method]\nsilence = 0.999\nstrength = 0.5\n#one-cycle\n": "method.strength: found a " +
			"learning rate of 0, or nearly", // of 1e-34
	} {
		base := small
		if strings.HasSuffix(text, "#0\n") {
			base = strings.Replace(small, "rate", "kind = \"linear\"\nfloor = 0.0\nrate", 1)
		} else if strings.HasSuffix(text, "#one-cycle\n") {
			base = strings.Replace(small, "rate", "floor = 0.0\nrate", 1)
		}
		_, err := Parse("test.toml", []byte(base+quantized+text), nil)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if strings.Contains(text, "form") && strings.Contains(fmt.Sprint(err), "learning rate") {
			t.Errorf("%s: the learning rate is mentioned in %v", text, err)
		}
	}
}

// TestStrengthBesideLambdaInSettings checks that settings of one source may not contain both.
func TestStrengthBesideLambdaInSettings(t *testing.T) {
	const want = "found beside method.lambda"
	text := []byte(small + quantized + "[method]\nstrength = 1.0\n")
	for _, overrides := range [][]string{
		{"method.lambda=3", "method.strength=0.75"},
		{"method.lambda=3", "method.strength=1.0"}, // that of the file
		{"method = {strength=1.0, lambda=2.0}"},
	} {
		if _, err := Parse("test.toml", text, overrides); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", overrides, err)
		}
	}
	doc, err := plaintoml.Parse("test.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	both := []plaintoml.Setting{{Key: "method.strength", Value: 0.5, Line: 1},
		{Key: "method.lambda", Value: 2.0, Line: 1}}
	if _, err := Resolve(doc, both, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	both[1].Line = 2
	if cfg, err := Resolve(doc, both, nil); err != nil || cfg.Method.CAGE.Strength != nil {
		t.Errorf("a later line does not replace the strength: %v", err)
	}
}
