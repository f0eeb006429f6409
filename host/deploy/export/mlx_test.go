package export_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/sdk"
)

// mlxGrid returns a quantizer to the numbers of a grid in turn, with the same scale everywhere.
func mlxGrid(
	grid sdk.Grid, scale float32, zeros bool,
) func(architecture.Param, []float32) *export.Quantized {
	return func(p architecture.Param, x []float32) *export.Quantized {
		q := &export.Quantized{Value: make([]float32, len(x)), Codes: make([]int32, len(x)),
			Scale: []float32{scale}, Grid: grid}
		if grid.Group > 0 {
			for range len(x)/grid.Group - 1 {
				q.Scale = append(q.Scale, scale)
			}
		}
		codes := grid.Codes()
		if zeros {
			codes = append(codes, 0)
		}
		for i := range x {
			q.Codes[i] = codes[i%len(codes)]
			q.Value[i] = grid.Number(q.Codes[i]) * scale
		}
		return q
	}
}

// TestMLXTypes checks that the smallest type that can represent a grid is chosen.
func TestMLXTypes(t *testing.T) {
	const half, third = 1 + 0x1p-10, float32(1) / 3 // 11 and 24 significant bits
	for name, c := range map[string]struct {
		q    func(architecture.Param, []float32) *export.Quantized
		o    export.Options
		want string // type of q_proj, with rows of 64
	}{
		"four bits": {mlxGrid(sdk.Integers(-8, 7, 0), half, false), export.Options{},
			"int4, a scale for 64 elements"},
		"eight bits, groups": {mlxGrid(sdk.Integers(-128, 127, 32), half, false), export.Options{},
			"int8, a scale for 32 elements"},
		"ternary, any scale": {mlxGrid(sdk.Integers(-1, 1, 0), third, false), export.Options{},
			"int2, a scale for 64 elements"},
		"half-integers": {mlxGrid(sdk.OddIntegers(15, 0), half, false), export.Options{},
			"int4, a scale for 64 elements"},
		"signs, any scale": {mlxGrid(sdk.OddIntegers(1, 0), third, false), export.Options{},
			"int2, a scale for 64 elements"},
		"half-integers and 0": {mlxGrid(sdk.OddIntegers(15, 0), half, true), export.Options{},
			"int8, a scale for 64 elements"},
		"from one, and 0": {mlxGrid(sdk.Integers(1, 3, 0), half, true), export.Options{},
			"int2, a scale for 64 elements"},
		"larger on request": {mlxGrid(sdk.Integers(-1, 1, 0), half, false),
			export.Options{Type: "int8"}, "int8, a scale for 64 elements"},
		"E2M1, powers of two": {mlxGrid(sdk.E2M1(32), 0.25, false), export.Options{},
			"mxfp4, a scale for 32 elements"},
		"E2M1, half floats": {mlxGrid(sdk.E2M1(32), half, false), export.Options{},
			"int8, a scale for 32 elements"},
		"E2M1, beyond f16": {mlxGrid(sdk.E2M1(32), 0x1p-25, false), export.Options{Float: "f16"},
			"int8, a scale for 32 elements"},
		"any scale, inexact": {mlxGrid(sdk.Integers(-8, 7, 0), third, false),
			export.Options{Inexact: true}, "int4, a scale for 64 elements"},
	} {
		r, err := write(t, "mlx", small(t, architecture.KindLlama, c.q), c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, x := range r.Tensors {
			if strings.Contains(x.Name, "q_proj") && x.Type != c.want {
				t.Errorf("%s: %s, want %s", name, x.Type, c.want)
			}
			bound := 0.0
			if c.o.Inexact { // the product and the sum, below 8, are rounded once each
				bound = 2 * 0x1p-22
			}
			if x.Quantized && (x.Difference > bound || bound > 0 && x.Difference == 0) {
				t.Errorf("%s: %s differs by %v, want at most %v", name, x.Name, x.Difference, bound)
			}
		}
	}
}

// TestMLXConfig checks that config.json has the scheme of the first packed module, and the modules
// with other schemes, but no unquantized weights. A head can be packed like other matrices.
func TestMLXConfig(t *testing.T) {
	m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
		switch p.Name {
		case "layers.0.mlp.down":
			return mlxGrid(sdk.E2M1(32), 0.5, false)(p, x)
		case "layers.0.attn.out":
			q := integers(32, halfSeventh)(p, x)
			q.Rotation = 32
			return q
		}
		return integers(32, halfSeventh)(p, x)
	})
	inner := m.Quantized
	m.Quantized = func(name string) (*export.Quantized, error) {
		if name != "head" {
			return inner(name)
		}
		x, err := m.Latent(name)
		return mlxGrid(sdk.Integers(-128, 127, 0), 0.5, false)(architecture.Param{}, x), err
	}
	if _, err := write(t, "mlx", m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), "1 of 8 quantized weights would be stored as floats") {
		t.Errorf("a rotated weight: %v", err)
	}
	dir, r := exported(t, "mlx", m, export.Options{Floats: true, Float: "f32"})
	if !r.Exact {
		t.Error("not exact")
	}
	type mode struct {
		Group int    `json:"group_size"`
		Bits  int    `json:"bits"`
		Mode  string `json:"mode"`
	}
	var config map[string]any
	testfile.ReadJSON(t, filepath.Join(dir, "config.json"), &config)
	for _, key := range []string{"quantization", "quantization_config"} {
		got := config[key].(map[string]any)
		want := map[string]mode{"": {32, 4, "affine"}, "lm_head": {64, 8, "affine"},
			"model.layers.0.mlp.down_proj": {32, 4, "mxfp4"}}
		if len(got) != 3+len(want)-1 {
			t.Errorf("%s is %v", key, got)
		}
		for module, w := range want {
			entry := got
			if module != "" {
				entry = got[module].(map[string]any)
			}
			if g := (mode{int(entry["group_size"].(float64)), int(entry["bits"].(float64)),
				entry["mode"].(string)}); g != w {
				t.Errorf("%s of %q is %v, want %v", key, module, g, w)
			}
		}
	}
	if config["torch_dtype"] != "float32" {
		t.Errorf("the type is %v", config["torch_dtype"])
	}
}

// TestMLXWords compares the words, scales and biases of a matrix with a computation by hand.
func TestMLXWords(t *testing.T) {
	m := small(t, architecture.KindLlama, mlxGrid(sdk.Integers(-1, 1, 0), 0.5, false))
	dir, _ := exported(t, "mlx", m, export.Options{})
	f := tensors(t, dir, "model.safetensors")
	const name = "model.layers.0.mlp.gate_proj"
	words, err := f.Tensor(name + ".weight")
	if err != nil || words.DType != "U32" || words.Shape[0] != 96 || words.Shape[1] != 4 {
		t.Fatalf("%+v, error %v", words, err)
	}
	// −1, 0, 1 are the codes 0, 1, 2, two bits each, the first one lowest: 0b…_00_10_01_00.
	if got := data(t, f, name+".weight")[:3]; got[0] != 0b00100100 || got[1] != 0b01001001 ||
		got[2] != 0b10010010 {
		t.Errorf("the words begin with %08b", got)
	}
	if s, b := floats(t, f, name+".scales"), floats(t, f, name+".biases"); len(s) != 96 ||
		s[0] != 0.5 || len(b) != 96 || b[95] != -0.5 {
		t.Errorf("scales %v, biases %v", s, b)
	}
}

// TestMLXRange checks that codes whose products with their scale are infinite are refused.
func TestMLXRange(t *testing.T) {
	if _, err := write(t, "mlx",
		small(t, architecture.KindLlama, mlxGrid(sdk.Integers(-8, 7, 0), math.MaxFloat32/8, false)),
		export.Options{}); err == nil {
		t.Error("a scale times 15 is beyond float32, and is accepted")
	}
}
