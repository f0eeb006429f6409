package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/method/cage"
)

// Weights that only an override quantizes are corrected as all quantized weights are.
func TestFormFollowsOverrides(t *testing.T) {
	const only = "[[quantizer.overrides]]\nmatch = \"*\"\nplugin = \"absmax\"\n"
	for text, want := range map[string]cage.Form{
		only: "decoupled", only + "role = \"activations\"\n": "off", only + "role = \"weights\"\n": "decoupled",
		"[[quantizer.overrides]]\nmatch = \"*\"\nplugin = \"none\"\n":     "off",
		only + "[method]\nname = \"lotion\"\n":                            "off",
		only + "[method]\nname = \"off\"\nlambda = 1\npareto_every = 5\n": "off",
		only + "[method]\nform = \"off\"\n":                               "off",
	} {
		if got := parse(t, small+text).Method.Form; got != want {
			t.Errorf("method.form is %q, want %q, with\n%s", got, want, text)
		}
	}
}

func TestMethods(t *testing.T) {
	const weights = "[quantizer.weights]\nplugin = \"absmax\"\n"
	c := parse(t, small+weights, `method={name="lotion", coeff=10, fisher_decay=0.9, bits=3}`)
	want := cage.Settings{Name: "lotion", Gradient: "quantized",
		Method: cage.Method{Form: cage.Off, Variant: cage.Paper, Lambda: 2, Silence: 0.9, Ramp: cage.Linear},
		Coeff:  10, FisherDecay: 0.9, Bits: 3, Denom: "power"}
	if diff := cmp.Diff(want, c.Method); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, d := range []struct {
		denom string
		bits  int
		want  float64
	}{{"power", 4, 8}, {"symmetric", 4, 7}, {"power", 2, 2}, {"symmetric", 2, 1}, {"power", 16, 32768}} {
		if got := (cage.Settings{Bits: d.bits, Denom: d.denom}).Lotion().Denominator; got != d.want {
			t.Errorf("%s at %d bits: %g, want %g", d.denom, d.bits, got, d.want)
		}
	}
	// What is written are the keys of the method, and of no other.
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	section := "\n[method]\nname = \"lotion\"\ncoeff = 10.0\nfisher_decay = 0.9\nbits = 3\ndenom = \"power\"\n\n"
	if !strings.Contains(string(text), section) {
		t.Errorf("no %q in\n%s", section, text)
	}
	diffs, err := Diff(parse(t, small+weights, "method.silence=0.5", `method.name="cage"`), c)
	if err != nil || diffs[0] != (Difference{"method.name", `"cage"`, `"lotion"`}) || len(diffs) != 12 {
		t.Errorf("Diff: %v, %v", diffs, err)
	}
}
