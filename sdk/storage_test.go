package sdk_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
)

// compact is an optimizer with declared storage types of its state.
type compact struct {
	optimizer
	storage map[string]sdk.Storage
}

func (c compact) Storage(sdk.Tensor) map[string]sdk.Storage { return c.storage }

func TestCompact(t *testing.T) {
	out := overWire(t, compact{momentum, map[string]sdk.Storage{"m": sdk.StoreBFloat16}})
	if out.State[0].Storage != sdk.StoreBFloat16 || out.State[1].Storage != sdk.StoreFloat32 {
		t.Errorf("the state is %+v, want m to be kept as bfloat16", out.State)
	}
	for name, c := range map[string]struct {
		storage map[string]sdk.Storage
		says    string
	}{
		"a name that is none": {map[string]sdk.Storage{"x": sdk.StoreInt8},
			"Storage names the state tensor x, which Init does not return"},
		"a type that is none": {map[string]sdk.Storage{"m": "int4"},
			`state tensor m is stored as "int4": use int8, uint8 or bfloat16`},
		"float32 by its letter": {map[string]sdk.Storage{"m": "float32"}, "or nothing for float32"},
	} {
		if _, err := sdk.BuildOptimizer(compact{momentum, c.storage}, matrix); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestCompactAnswers checks that inconsistent answers are refused.
func TestCompactAnswers(t *testing.T) {
	m := optimizerAnswer(t, build(t, momentum))
	m.GetProgram().State[0].Storage = 9
	if _, err := client.NewOptimizer(encode(t, m)).
		Program(t.Context(), matrix, program.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "storage 9 is unknown to this version") {
		t.Errorf("an unknown type: %v", err)
	}
	out := build(t, momentum)
	out.State[0].Storage = sdk.StoreInt8
	out.Due.First, out.FirstRefresh = 1, out.Init
	if err := out.Check(matrix.Shape); err == nil ||
		!strings.Contains(err.Error(),
			"m is stored as int8: what a refresh may read must be stored as float32") {
		t.Errorf("with a refresh: %v", err)
	}
	q, err := sdk.BuildQuantizer(steps, sdk.Site{Name: "w", Role: sdk.RoleWeight, Shape: []int{2, 8}})
	if err != nil {
		t.Fatal(err)
	}
	q.Trained[0].Storage = sdk.StoreInt8
	if err := q.Check([]int{2, 8}); err == nil ||
		!strings.Contains(err.Error(), "a trained parameter must be stored as float32") {
		t.Errorf("a trained parameter: %v", err)
	}
}

func TestKept(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		s         sdk.Storage
		v, wanted float64
	}{
		{sdk.StoreFloat32, 1 + 0x1p-30, 1}, {sdk.StoreFloat32, 0.5, 0.5},
		{sdk.StoreInt8, -128, -128}, {sdk.StoreInt8, 127.4, 127}, {sdk.StoreInt8, 2.5, 2},
		{sdk.StoreInt8, 300, 127}, {sdk.StoreInt8, -1e9, -128},
		{sdk.StoreUint8, 255, 255}, {sdk.StoreUint8, -1, 0}, {sdk.StoreUint8, 256, 255},
		{sdk.StoreUint8, 3.5, 4},
		{sdk.StoreBFloat16, 1 + 0x1p-8, 1}, {sdk.StoreBFloat16, 1 + 0x3p-8, 1 + 0x1p-6},
		{sdk.StoreBFloat16, -1 - 0x1.1p-8, -1 - 0x1p-7},
		{sdk.StoreBFloat16, 1e39, inf}, {sdk.StoreBFloat16, inf, inf}, {sdk.StoreBFloat16, nan, nan},
		{sdk.StoreBFloat16, 0x1p-133, 0x1p-133},
		{sdk.StoreBFloat16, 0x1.fffffep127, inf},
	} {
		if got := c.s.Round(c.v); got != c.wanted && !(math.IsNaN(got) && math.IsNaN(c.wanted)) {
			t.Errorf("%s keeps %v as %v, want %v", c.s, c.v, got, c.wanted)
		}
	}
	for s, want := range map[sdk.Storage]int{sdk.StoreFloat32: 4, sdk.StoreInt8: 1, sdk.StoreUint8: 1,
		sdk.StoreBFloat16: 2} {
		if s.Bytes() != want {
			t.Errorf("%s takes %d bytes, want %d", s, s.Bytes(), want)
		}
	}
}

// rounded is an optimizer that rounds its tensors to a storage type.
type rounded struct {
	optimizer
	to sdk.Storage
}

func (r rounded) RoundTo(sdk.Tensor) sdk.Storage { return r.to }

func TestRounded(t *testing.T) {
	for _, to := range []sdk.Storage{sdk.StoreFloat32, sdk.StoreBFloat16} {
		if out := overWire(t, rounded{momentum, to}); out.Rounded != to {
			t.Errorf("the tensor is rounded to %q, want %q", out.Rounded, to)
		}
	}
	for _, to := range []sdk.Storage{sdk.StoreInt8, "float64"} {
		if _, err := sdk.BuildOptimizer(rounded{momentum, to}, matrix); err == nil ||
			!strings.Contains(err.Error(), "want bfloat16 or nothing") {
			t.Errorf("to %s: %v", to, err)
		}
	}
	m := optimizerAnswer(t, build(t, momentum))
	m.GetProgram().Rounded = 9
	if _, err := client.NewOptimizer(encode(t, m)).
		Program(t.Context(), matrix, program.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "rounded: storage 9 is unknown to this version") {
		t.Errorf("an unknown type: %v", err)
	}
}
