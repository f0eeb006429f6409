package main

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance also compares with values of testdata/kivi.py, an independent implementation.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, kivi{},
		plugintest.With(t, nil, sdktest.GoldenFile(t, "testdata/kivi.json"))...)
}

func site(t *testing.T, role sdk.Role, tokens, context int, settings map[string]any) sdk.Site {
	t.Helper()
	values, err := kivi{}.Describe().Resolve(settings)
	if err != nil {
		t.Fatal(err)
	}
	return sdk.Site{Role: role, Name: "layers.0.attn.keys", Shape: []int{tokens, 6}, Heads: 2,
		Context: context, Values: values}
}

// TestSequences checks that groups of keys end with a sequence, and that value tokens do not affect
// each other.
func TestSequences(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float64, 14*6)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	for role, context := range map[sdk.Role]int{sdk.RoleKey: 7, sdk.RoleValue: 1} {
		settings := map[string]any{"group": 4}
		whole := values(t, site(t, role, 14, 7, settings), x)
		for from := 0; from < 14; from += context {
			part := x[from*6 : (from+context)*6]
			if got := values(t, site(t, role, context, context, settings), part); !slices.Equal(got,
				whole[from*6:(from+context)*6]) {
				t.Errorf("%ss of tokens from %d on differ from those in two sequences", role, from)
			}
		}
	}
}

func values(t *testing.T, s sdk.Site, x []float64) []float64 {
	t.Helper()
	q, err := sdk.BuildQuantizer(kivi{}, s)
	if err != nil {
		t.Fatal(err)
	}
	out, err := reference.Run(q.Program,
		map[string]reference.Tensor{spec.InputX: reference.Floats(x, s.Shape...)})
	if err != nil {
		t.Fatal(err)
	}
	return out[spec.OutputValue].Float64s()
}

// TestRefuses checks groups of tokens without a sequence, other roles, and unsuitable shapes.
func TestRefuses(t *testing.T) {
	headless, row := site(t, sdk.RoleValue, 14, 7, nil), site(t, sdk.RoleValue, 14, 7, nil)
	headless.Heads, row.Shape = 0, []int{6}
	for _, s := range []sdk.Site{site(t, sdk.RoleKey, 14, 1, nil),
		site(t, sdk.RoleActivation, 14, 7, nil), headless, row} {
		_, err := sdk.BuildQuantizer(kivi{}, s)
		if _, ok := errors.AsType[*sdk.Refusal](err); !ok {
			t.Errorf("role %s: %v", s.Role, err)
		}
	}
	if _, err := sdk.BuildQuantizer(kivi{},
		site(t, sdk.RoleKey, 14, 1, map[string]any{"keys_per": "token"})); err != nil {
		t.Error(err)
	}
}
