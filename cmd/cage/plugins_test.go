package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// rogue is the main function of a plugin whose texts have escape sequences for the terminal.
func rogue() { sdk.ServeQuantizer(rogueQuantizer{}) }

type rogueQuantizer struct{}

func (rogueQuantizer) Describe() sdk.Description {
	return sdk.Description{Name: "rogue", Doc: "Doc \x1b[2J\u202e", Parameters: []sdk.Parameter{
		sdk.Choice("level", "a\x1b[1m", []string{"a\x1b[1m"}, "one, two\x1b[2J"),
	}, Claims: []sdk.Claim{{Name: sdk.ClaimTies, When: map[string]any{"level": "a\x1b[1m"}}}}
}

func (rogueQuantizer) Quantize(*program.Builder, program.Value, sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{}, sdk.Refuse("not here\x1b[2J\u202e\ncage: done")
}

// broken is the main function of a quantizer with two mistakes and a wrong claim.
func broken() { sdk.ServeQuantizer(brokenQuantizer{}) }

type brokenQuantizer struct{}

func (brokenQuantizer) Describe() sdk.Description {
	return sdk.Description{Name: "broken", Doc: "Two mistakes.", Claims: []sdk.Claim{
		{Name: sdk.ClaimIdempotent}, {Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor},
	}}
}

func (brokenQuantizer) Quantize(
	_ *program.Builder, x program.Value, _ sdk.Site,
) (sdk.Quantized, error) {
	scale := x.Abs().MaxRow().Scale(1.0 / 7) // 0/0 in a row of zeros
	return sdk.Quantized{Value: x.Div(scale).Round().Mul(scale), Surrogate: x.Scale(2)}, nil
}

// faulty is the main function of a quantizer and optimizer. The quantizer's description is invalid.
func faulty() { sdk.Serve(faultyQuantizer{}, faultyOptimizer{}) }

type faultyQuantizer struct{}

func (faultyQuantizer) Describe() sdk.Description {
	return sdk.Description{Name: "faulty",
		Parameters: []sdk.Parameter{sdk.Int("bits", 9, 2, 8, "bits of a code")}}
}

func (faultyQuantizer) Quantize(
	_ *program.Builder, x program.Value, _ sdk.Site,
) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x, Surrogate: x}, nil
}

type faultyOptimizer struct{}

func (faultyOptimizer) Describe() sdk.Description { return sdk.Description{Name: "faulty"} }

func (faultyOptimizer) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

func (faultyOptimizer) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}

// FuzzSet checks that any setting of "plugins test" is parsed without a panic, and that a parameter
// that is declared as a string gets a string.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{"bits=4", "form=paper", `form="paper"`, "c=1e3", "c=inf",
		"c=1979-05-27", "c={a=1}", "c=1\nd=2", "c=[1", "form=12"} {
		f.Add(seed)
	}
	about := sdk.Description{Name: "a", Parameters: []sdk.Parameter{sdk.String("form", "", ""),
		sdk.Int("bits", 4, 2, 8, ""), sdk.Float("c", 1, 0, 2, "")}}
	f.Fuzz(func(t *testing.T, set string) {
		settings, _ := pluginSettings([]string{set}, about)
		for name, v := range settings {
			if _, isText := v.(string); name == "form" && !isText {
				t.Fatalf("%q gives a %T", set, v)
			}
		}
		_, _ = about.Resolve(settings)
	})
}
