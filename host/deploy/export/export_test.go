package export_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// small returns a model with random weights whose matrices are quantized by q.
func small(
	t testing.TB, kind string, q func(param architecture.Param, x []float32) *export.Quantized,
) *export.Model {
	t.Helper()
	return smallOf(t, architecture.Settings{Kind: kind}, q)
}

// smallOf is like small, with the given settings.
func smallOf(
	t testing.TB, s architecture.Settings,
	q func(param architecture.Param, x []float32) *export.Quantized,
) *export.Model {
	t.Helper()
	s.Heads, s.KVHeads, s.Vocab, s.Context = 4, 2, 256, 16
	s.Layers, s.RopeFactor = max(1, s.Layers), max(1, s.RopeFactor)
	s.Width, s.Hidden = cmp.Or(s.Width, 64), cmp.Or(s.Hidden, 96)
	s.FillIn()
	network, err := model.New(s, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &export.Model{Settings: s, Params: network.Params(), Card: export.Card{Name: "small"}}
	m.LoRA = lora.Settings{Rank: 2, Alpha: 4, Targets: lora.Targets}
	m.Adapters = m.LoRA.Of(m.Settings)
	var factors []architecture.Param
	for _, a := range m.Adapters {
		for _, f := range []lora.Factor{a.A(), a.B()} {
			factors = append(factors, architecture.Param{Name: f.Name, Dims: f.Dims, InitStd: 1})
		}
	}
	find := func(name string) architecture.Param {
		for _, p := range slices.Concat(m.Params, factors) {
			if p.Name == name {
				return p
			}
		}
		t.Fatalf("there is no parameter %s", name)
		return architecture.Param{}
	}
	m.Latent = func(name string) ([]float32, error) { return find(name).Init(1), nil }
	m.Quantized = func(name string) (*export.Quantized, error) {
		if p := find(name); p.Quantized && q != nil {
			return q(p, p.Init(1)), nil
		}
		return nil, nil
	}
	if m.Tokenizer, err = export.NewTokenizer(nil, tokenizer.Bytes{}.Info()); err != nil {
		t.Fatal(err)
	}
	return m
}

// integers returns a quantizer with a scale for each group of elements of a row.
func integers(
	group int, step func(largest float32) float32,
) func(architecture.Param, []float32) *export.Quantized {
	return func(p architecture.Param, x []float32) *export.Quantized {
		q := &export.Quantized{Value: make([]float32, len(x)), Codes: make([]int32, len(x)),
			Grid: sdk.Integers(-8, 7, group)}
		for at := 0; at < len(x); at += group {
			s := step(largest(x[at:at+group], group, 1)[0])
			q.Scale = append(q.Scale, s)
			for i := at; i < at+group; i++ {
				q.Codes[i] = int32(math.RoundToEven(float64(x[i] / s)))
				q.Codes[i] = max(-8, min(7, q.Codes[i]))
				q.Value[i] = float32(q.Codes[i]) * s
			}
		}
		return q
	}
}

func seventh(m float32) float32 { return m / 7 }

// halfSeventh returns m/7 with ten significant bits.
func halfSeventh(m float32) float32 {
	return math.Float32frombits(math.Float32bits(m/7) &^ 0x3fff)
}

func write(t *testing.T, format string, m *export.Model, o export.Options) (*export.Report, error) {
	t.Helper()
	return export.Write(t.Context(), format, vfs.At(filepath.Join(t.TempDir(), "out")), m, o)
}

// exported writes an export that must succeed.
func exported(
	t *testing.T, format string, m *export.Model, o export.Options,
) (dir string, report *export.Report) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	report, err := export.Write(t.Context(), format, vfs.At(dir), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return dir, report
}

// TestKinds checks that each kind of language model in each format reads back as Q(x).
func TestKinds(t *testing.T) {
	for _, kind := range architecture.Languages {
		for _, format := range export.Formats() {
			s := architecture.Settings{Kind: kind}
			switch kind {
			case architecture.KindGemma:
				s.Head = "tied"
			case architecture.KindGemma2: // as llama.cpp and mlx-lm require
				s.Head, s.ScoreCap, s.LogitCap = "tied", 50, 30
			case architecture.KindGemma3:
				s.Layers = 6
			case architecture.KindOLMo3:
				s.Layers = 4
			}
			r, err := write(t, format, smallOf(t, s, integers(32, halfSeventh)), export.Options{})
			if err != nil || !r.Exact {
				t.Errorf("%s as %s: %v", kind, format, err)
				continue
			}
			for _, x := range r.Tensors {
				if x.Difference != 0 || x.Bytes == 0 {
					t.Errorf("%s as %s: %+v", kind, format, x)
				}
			}
		}
	}
}

// TestRefusals checks that what a format cannot represent exactly is refused with the reason and a
// remedy, and that no files remain.
func TestRefusals(t *testing.T) {
	rotated := func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		q.Rotation = 32
		return q
	}
	silent := func(_ architecture.Param, x []float32) *export.Quantized {
		return &export.Quantized{Value: x}
	}
	broken := func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		q.Value[5] = float32(math.NaN())
		return q
	}
	untrue := func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		q.Value[5] *= 1 + 0x1p-20
		return q
	}
	for _, c := range []struct {
		format string
		q      func(architecture.Param, []float32) *export.Quantized
		o      export.Options
		says   []string
	}{
		{"gguf", integers(32, seventh), export.Options{},
			[]string{"blk.0.attn_q.weight and 6 more", "not all scales are half floats",
				`scale_dtype = "f16"`, "--type f32"}},
		{"gguf", integers(16, halfSeventh), export.Options{},
			[]string{"shared by 16 elements, want a multiple of 32"}},
		{"gguf", integers(32, halfSeventh), export.Options{Type: "mxfp4"},
			[]string{"has integers from -8 to 7 in steps of 1, want numbers of E2M1"}},
		{"gguf", integers(32, halfSeventh), export.Options{Type: "q4_1"},
			[]string{"not all codes are odd"}},
		{"gguf", integers(32, halfSeventh), export.Options{Type: "q5_k"},
			[]string{`no type "q5_k"`, "q4_0"}},
		{"gguf", integers(32, seventh), export.Options{Type: "f16"},
			[]string{"as f16", "the type does not represent all values exactly"}},
		{"gguf", nil, export.Options{Type: "q8_0"},
			[]string{"no weight of this model is quantized", "--dtype"}},
		{"gguf", silent, export.Options{}, []string{"returns no codes and scales"}},
		{"gguf", broken, export.Options{}, []string{"NaN or infinite"}},
		{"gguf", untrue, export.Options{}, []string{"differs from its codes times its scales"}},
		{"hf", integers(32, seventh), export.Options{Float: "bf16"},
			[]string{"as bf16: the type does not represent all values exactly", "--dtype f32"}},
		{"hf", nil, export.Options{Float: "f64"}, []string{`no float type "f64"`}},
		{"hf", nil, export.Options{Type: "int4"}, []string{"plain floats"}},
		{"compressed-tensors", rotated, export.Options{}, []string{"rotates blocks of 32", "--to hf"}},
		{"compressed-tensors", nil, export.Options{}, []string{"no weight of this model is quantized"}},
		{"compressed-tensors", integers(32, seventh), export.Options{Type: "nvfp4"},
			[]string{"has integers from -8 to 7 in steps of 1, want numbers of E2M1"}},
		{"compressed-tensors", integers(32, seventh), export.Options{Type: "int3"},
			[]string{"there is no type \"int3\": want one of int4, int8, mxfp4, nvfp4"}},
		{"mlx", integers(32, seventh), export.Options{},
			[]string{"model.layers.0.self_attn.q_proj.weight and 6 more",
				"as int2: 16 numbers from -8 to 7 do not fit into 2 bits",
				"as int4: MLX computes scale·code + bias, which is rounded for some scales",
				`scale_dtype = "f16"`, "--inexact allows it"}},
		{"mlx", integers(16, halfSeventh), export.Options{},
			[]string{"shared by 16 elements, want a multiple of 32"}},
		{"mlx", integers(32, halfSeventh), export.Options{Type: "mxfp4"},
			[]string{"has integers from -8 to 7 in steps of 1, want numbers of E2M1"}},
		{"mlx", integers(32, halfSeventh), export.Options{Type: "int3"},
			[]string{"there is no type \"int3\": want one of int2, int4, int8, mxfp4"}},
		{"mlx", rotated, export.Options{}, []string{"no weight can be packed", "rotates blocks of 32",
			"--to hf"}},
		{"mlx", nil, export.Options{}, []string{"no weight of this model is quantized"}},
		{"onnx", nil, export.Options{}, []string{`no format "onnx"`, "gguf"}},
	} {
		dir := t.TempDir()
		_, err := export.Write(t.Context(), c.format, vfs.At(filepath.Join(dir, "out")),
			small(t, architecture.KindLlama, c.q), c.o)
		if err == nil {
			t.Errorf("%s %+v was written, want an error that says %q", c.format, c.o, c.says)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s %+v: %v\nwant %q in it", c.format, c.o, err, says)
			}
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s %+v left %v", c.format, c.o, left)
		}
	}
}

// TestRotatedGGUF checks that rotated weights are stored as floats if allowed, with the reason in
// the report.
func TestRotatedGGUF(t *testing.T) {
	m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
		return &export.Quantized{Value: x, Codes: make([]int32, len(x)), Scale: []float32{1},
			Rotation: 32}
	})
	if _, err := write(t, "gguf", m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), "7 of 7 quantized weights would be stored as floats") {
		t.Errorf("without permission: %v", err)
	}
	r, err := write(t, "gguf", m, export.Options{Floats: true})
	if err != nil || !r.Exact ||
		!strings.Contains(strings.Join(r.Summary(), "\n"), "rotates blocks of 32") {
		t.Errorf("%+v, error %v", r, err)
	}
}

// TestShortGroups checks that a last group of a row that is shorter than the others is reported,
// also if the number of groups divides the row length.
func TestShortGroups(t *testing.T) {
	for _, c := range []struct {
		group int
		grid  sdk.Grid
		says  string
	}{
		{40, sdk.Integers(-8, 7, 40),
			"rows of 64 elements end in a group of 24, shorter than the others of 40"},
		// 3 groups
		{24, sdk.Integers(-8, 7, 24),
			"rows of 64 elements end in a group of 16, shorter than the others of 24"},
		{48, sdk.E2M1(48), "the row length must be a multiple of 48"},
	} {
		for _, format := range []string{"compressed-tensors", "gguf", "mlx"} {
			_, err := write(t, format, small(t, architecture.KindLlama, inGroups(c.group, c.grid)),
				export.Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, groups of %d, %v: %v, want %q", format, c.group, c.grid, err, c.says)
			}
		}
	}
}

// TestAdvice checks that the remedies in error messages work.
func TestAdvice(t *testing.T) {
	large := func(m *export.Model) *export.Model { // a float beyond f16
		latent := m.Latent
		m.Latent = func(name string) ([]float32, error) {
			values, err := latent(name)
			values[0] = 1e5
			return values, err
		}
		return m
	}
	plain := small(t, architecture.KindLlama, integers(32, halfSeventh))
	inexact := small(t, architecture.KindLlama, integers(32, seventh))
	silent := small(t, architecture.KindLlama,
		func(_ architecture.Param, x []float32) *export.Quantized { return &export.Quantized{Value: x} })
	short := small(t, architecture.KindLlama, inGroups(40, sdk.Integers(-8, 7, 40)))
	embedding := large(small(t, architecture.KindLlama, integers(32, halfSeventh)))
	for _, c := range []struct {
		format string
		m      *export.Model
		o      export.Options
		advice string
		to     string
		then   export.Options
	}{
		{"gguf", inexact, export.Options{}, "--type f32 ", "gguf", export.Options{Type: "f32"}},
		{"gguf", inexact, export.Options{Float: "f16"}, "--inexact rounds them", "gguf",
			export.Options{Inexact: true, Float: "f16"}},
		{"gguf", inexact, export.Options{Type: "bf16"}, "--type f32 ", "gguf",
			export.Options{Type: "f32"}},
		{"gguf", silent, export.Options{Float: "bf16"}, "--type f32 ", "gguf",
			export.Options{Type: "f32", Float: "bf16"}},
		{"gguf", short, export.Options{}, "--type f32 ", "gguf", export.Options{Type: "f32"}},
		{"gguf", embedding, export.Options{Float: "f16"}, "--dtype f32 ", "gguf",
			export.Options{Float: "f32"}},
		{"compressed-tensors", embedding, export.Options{Float: "f16"}, "--dtype f32 ",
			"compressed-tensors", export.Options{Float: "f32"}},
		{"compressed-tensors", short, export.Options{Type: "int4", Float: "bf16"},
			"--to hf --dtype f32, without --type,", "hf", export.Options{Float: "f32"}},
		{"compressed-tensors", silent, export.Options{}, "--to hf --dtype f32, without --type,", "hf",
			export.Options{Float: "f32"}},
		{"compressed-tensors", plain, export.Options{Type: "mxfp4"},
			"--to hf --dtype f32, without --type,", "hf", export.Options{Float: "f32"}},
		{"mlx", inexact, export.Options{}, "--inexact allows it", "mlx", export.Options{Inexact: true}},
		{"mlx", inexact, export.Options{Float: "bf16"}, "--to hf --dtype f32, without --type,", "hf",
			export.Options{Float: "f32"}},
		{"mlx", embedding, export.Options{Float: "f16"}, "--dtype f32 ", "mlx",
			export.Options{Float: "f32"}},
		{"hf", inexact, export.Options{Float: "bf16"}, "--dtype f32 ", "hf",
			export.Options{Float: "f32"}},
		{"hf", embedding, export.Options{Float: "f16"}, "--dtype f32 ", "hf",
			export.Options{Float: "f32"}},
	} {
		_, err := write(t, c.format, c.m, c.o)
		if err == nil || !strings.Contains(err.Error(), c.advice) ||
			strings.Contains(c.advice, "dtype") && strings.Contains(err.Error(), "--type f32") {
			t.Errorf("%s %+v: %v, want the advice %q alone", c.format, c.o, err, c.advice)
		}
		if _, err := write(t, c.to, c.m, c.then); err != nil {
			t.Errorf("%s %+v, as advised by %s %+v: %v", c.to, c.then, c.format, c.o, err)
		}
	}
	broken := large(small(t, architecture.KindLlama, nil))
	latent := broken.Latent
	broken.Latent = func(name string) ([]float32, error) {
		values, err := latent(name)
		values[0] = float32(math.NaN())
		return values, err
	}
	for _, format := range export.Formats() {
		if _, err := write(t, format, broken, export.Options{}); err == nil ||
			strings.Contains(err.Error(), "--") && format != "compressed-tensors" && format != "mlx" {
			t.Errorf("%s of NaN: %v: nothing helps", format, err)
		}
	}
}

// inGroups returns a quantizer of all elements to 1 in groups of a row, with several scales.
func inGroups(group int, grid sdk.Grid) func(architecture.Param, []float32) *export.Quantized {
	return func(p architecture.Param, x []float32) *export.Quantized {
		q := &export.Quantized{Value: make([]float32, len(x)), Codes: make([]int32, len(x)), Grid: grid}
		for row := 0; row < len(x); row += p.Dims[1] {
			for from := 0; from < p.Dims[1]; from += group {
				scale := float32(1+len(q.Scale)%7) / 8
				q.Scale = append(q.Scale, scale)
				for i := row + from; i < row+min(from+group, p.Dims[1]); i++ {
					q.Codes[i], q.Value[i] = 1, scale
					if grid.Format == "e2m1" {
						q.Codes[i] = 2
					}
				}
			}
		}
		return q
	}
}

// TestOneTypeForAll checks that weights with the same settings have one type, also if one of them
// fits a smaller type, and that weights with other settings can have another.
func TestOneTypeForAll(t *testing.T) {
	wide := func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		q.Grid = sdk.Integers(-16, 14, 32)
		if p.Name == "layers.0.mlp.down" {
			for i := range q.Codes { // beyond four bits
				q.Codes[i], q.Value[i] = 2*q.Codes[i], 2*q.Value[i]
			}
		}
		return q
	}
	for _, separate := range []bool{false, true} {
		m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
			q := wide(p, x)
			if separate {
				q.Settings = p.Name
				if p.Name != "layers.0.mlp.down" {
					q.Grid = sdk.Integers(-8, 7, 32)
				}
			}
			return q
		})
		for format, types := range map[string][2]string{"compressed-tensors": {"int4", "int8"},
			"gguf": {"Q4_0", "Q5_0"}, "mlx": {"int4", "int8"}} {
			_, r := exported(t, format, m, export.Options{})
			for _, x := range r.Tensors {
				want := types[1]
				if separate && x.Param != "layers.0.mlp.down" {
					want = types[0]
				}
				if x.Quantized && !strings.HasPrefix(x.Type, want) {
					t.Errorf("%s, separate %v: %s is %s, want %s", format, separate, x.Name, x.Type, want)
				}
			}
		}
	}
}

// TestIntegersAsFloats checks that a grid of integers can be stored as E2M1 if E2M1 has all numbers
// of the grid. The codes that occur do not matter.
func TestIntegersAsFloats(t *testing.T) {
	ternary := func(grid sdk.Grid) func(architecture.Param, []float32) *export.Quantized {
		return func(_ architecture.Param, x []float32) *export.Quantized {
			q := &export.Quantized{Value: make([]float32, len(x)), Codes: make([]int32, len(x)), Grid: grid,
				Scale: slices.Repeat([]float32{0.25}, len(x)/32)}
			for i := range x {
				q.Codes[i] = int32(i%3) - 1
				q.Value[i] = float32(q.Codes[i]) * 0.25
			}
			return q
		}
	}
	for _, format := range []string{"compressed-tensors", "gguf", "mlx"} {
		if r, err := write(t, format, small(t, architecture.KindLlama, ternary(sdk.Integers(-1, 1, 32))),
			export.Options{Type: "mxfp4"}); err != nil || !r.Exact {
			t.Errorf("ternary numbers as %s: %v", format, err)
		}
		_, err := write(t, format, small(t, architecture.KindLlama, ternary(sdk.Integers(-8, 7, 32))),
			export.Options{Type: "mxfp4"})
		if err == nil || !strings.Contains(err.Error(),
			"has integers from -8 to 7 in steps of 1, want numbers of E2M1") {
			t.Errorf("four bits as %s: %v", format, err)
		}
		q := ternary(sdk.Integers(0, 1, 32))
		if _, err := write(t, format, small(t, architecture.KindLlama, q),
			export.Options{}); err == nil ||
			!strings.Contains(err.Error(),
				"the code -1, which is not in the grid that the plugin declares") {
			t.Errorf("a wrong grid as %s: %v", format, err)
		}
	}
}

// TestFloatsAreCounted checks that quantized weights that a format can only store as floats are
// refused, unless floats are allowed.
func TestFloatsAreCounted(t *testing.T) {
	m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		if p.Name == "layers.0.attn.out" {
			q.Rotation = 32
		}
		return q
	})
	for _, format := range []string{"compressed-tensors", "gguf", "mlx"} {
		_, err := write(t, format, m, export.Options{})
		if err == nil || !strings.Contains(err.Error(),
			"1 of 7 quantized weights would be stored as floats") ||
			!strings.Contains(err.Error(), "--allow-floats") {
			t.Errorf("%s: %v", format, err)
		}
		if r, err := write(t, format, m, export.Options{Floats: true}); err != nil || !r.Exact {
			t.Errorf("%s, allowed: %v", format, err)
		}
	}
}

// TestInexact checks that scales are rounded if allowed, and that the report has the difference: at
// most half a unit in the last place of a half float, relatively 2^−11.
func TestInexact(t *testing.T) {
	_, r := exported(t, "gguf", small(t, architecture.KindLlama, integers(32, seventh)),
		export.Options{Inexact: true})
	if r.Exact || !strings.Contains(strings.Join(r.Summary(), "\n"), "different by up to") {
		t.Errorf("the report is %v", r.Summary())
	}
	for _, x := range r.Tensors {
		if x.Quantized != (x.Difference > 0) || x.Difference > 0.1*0x1p-11 {
			t.Errorf("%s (quantized: %v) differs by %v", x.Name, x.Quantized, x.Difference)
		}
	}
}

// TestLatent checks the export of the unquantized weights that the optimizer updates.
func TestLatent(t *testing.T) {
	_, r := exported(t, "hf", small(t, architecture.KindLlama, integers(32, seventh)),
		export.Options{Latent: true, Float: "bf16"})
	for _, x := range r.Tensors {
		if x.Quantized || x.Difference > 0x1p-9 {
			t.Errorf("%+v", x)
		}
	}
}

// TestShards checks that tensors are in several files if the size of a file is limited.
func TestShards(t *testing.T) {
	out, _ := exported(t, "hf", small(t, architecture.KindLlama, nil),
		export.Options{ShardSize: 50000})
	files, err := filepath.Glob(out + "/model-0000?-of-*.safetensors")
	if err != nil || len(files) < 2 {
		t.Errorf("the files are %v, error %v", files, err)
	}
	if _, err := os.Stat(out + "/model.safetensors.index.json"); err != nil {
		t.Error(err)
	}
}

// fourBitFloats returns a quantizer to random E2M1 codes with scales of groups.
func fourBitFloats(
	t testing.TB, group int, scales func(largest []float32) []float32,
) func(architecture.Param, []float32) *export.Quantized {
	return func(_ architecture.Param, x []float32) *export.Quantized {
		q := &export.Quantized{Value: make([]float32, len(x)), Codes: make([]int32, len(x)),
			Scale: scales(largest(x, group, 1)), Grid: sdk.E2M1(group)}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range x {
			q.Codes[i] = rng.Int32N(16)
			q.Value[i] = magnitudes[q.Codes[i]%8] * q.Scale[i/group]
			if q.Codes[i] > 7 {
				q.Value[i] = -q.Value[i]
			}
		}
		return q
	}
}

// TestTwoLevels checks that scales that are E4M3 numbers divided by one global number are found for
// any such number, and so are powers of two divided by 0.75.
func TestTwoLevels(t *testing.T) {
	encode := func(global func(largest float32) float32) func(m []float32) []float32 {
		return func(m []float32) []float32 {
			g := global(largest(m, len(m), 1)[0])
			var out []float32
			for i := range m {
				out = append(out, e4m3(byte(1+(i*37)%126))/g)
			}
			return out
		}
	}
	fourThirds := func(m []float32) []float32 {
		var out []float32
		for _, v := range m {
			_, e := math.Frexp(float64(v))
			out = append(out, float32(4.0/3)*float32(math.Ldexp(1, e-3)))
		}
		return out
	}
	for name, q := range map[string]func(architecture.Param, []float32) *export.Quantized{
		"2688/0.1":    fourBitFloats(t, 16, encode(func(float32) float32 { return 2688 / float32(0.1) })),
		"odd":         fourBitFloats(t, 16, encode(func(float32) float32 { return 1234.5678 })),
		"four thirds": fourBitFloats(t, 32, fourThirds),
		"some zeros": fourBitFloats(t, 16,
			func(m []float32) []float32 { return append(make([]float32, len(m)-1), 0.5) }),
	} {
		r, err := write(t, "compressed-tensors", small(t, architecture.KindLlama, q),
			export.Options{Type: "nvfp4"})
		if err != nil || !r.Exact {
			t.Errorf("%s: %v", name, err)
		}
	}
	product := func(m []float32) []float32 { // an E4M3 number times a decode scale, rounded
		g := largest(m, len(m), 1)[0] / 2688
		out := encode(func(float32) float32 { return 1 })(m)
		for i := range out {
			out[i] *= g
		}
		return out
	}
	m := small(t, architecture.KindLlama, fourBitFloats(t, 16, product))
	if _, err := write(t, "compressed-tensors", m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), `scale_form = "power_of_two"`) {
		t.Errorf("products of scales: %v", err)
	}
	for _, o := range []export.Options{{Type: "int8"}, {Inexact: true}} {
		r, err := write(t, "compressed-tensors", m, o)
		if err != nil || r.Exact != (o.Type != "") {
			t.Errorf("%+v: %+v, error %v", o, r, err)
		}
	}
}

// TestJoinedLayers checks that gate_proj and up_proj have the same global scale, as vLLM requires,
// also if their quantizer gave them different powers of two. If that is impossible, the export is
// refused.
func TestJoinedLayers(t *testing.T) {
	model := func(gate, up float32) *export.Model {
		return small(t, architecture.KindLlama,
			func(p architecture.Param, x []float32) *export.Quantized {
				global := gate
				if p.Name == "layers.0.mlp.w2" {
					global = up
				}
				return fourBitFloats(t, 16, func(m []float32) (out []float32) {
					for i := range m {
						out = append(out, e4m3(byte(40+(i*37)%86))/global)
					}
					return out
				})(p, x)
			})
	}
	dir, r := exported(t, "compressed-tensors", model(4096, 1024), export.Options{Type: "nvfp4"})
	f := tensors(t, dir, "model.safetensors")
	gate, up := floats(t, f, "model.layers.0.mlp.gate_proj.weight_global_scale"),
		floats(t, f, "model.layers.0.mlp.up_proj.weight_global_scale")
	if !r.Exact || gate[0] != up[0] {
		t.Errorf("exact %v, global scales %v and %v", r.Exact, gate, up)
	}
	if _, err := write(t, "compressed-tensors", model(4096, 1000), export.Options{}); err == nil ||
		!strings.Contains(err.Error(), "for gate_proj and up_proj") {
		t.Errorf("global scales 4096 and 1000: %v", err)
	}
}

// TestFusedSchemes checks that gate_proj and up_proj are stored in a way that vLLM can fuse: with
// equal schemes, or both as floats, which needs Floats. MLX fuses nothing.
func TestFusedSchemes(t *testing.T) {
	const gate, up = "layers.0.mlp.w1", "layers.0.mlp.w2"
	four, eight := sdk.Integers(-7, 7, 32), sdk.Integers(-127, 127, 32)
	rotated := func(p architecture.Param, x []float32) *export.Quantized {
		q := integers(32, halfSeventh)(p, x)
		q.Rotation = 32
		return q
	}
	none := func(architecture.Param, []float32) *export.Quantized { return nil }
	type test struct {
		gate, up func(architecture.Param, []float32) *export.Quantized
		want     string // the type of both, or why they have none
		options  export.Options
	}
	for name, c := range map[string]test{
		"equal": {inGroups(32, four), inGroups(32, four),
			"int4, a scale for 32 elements", export.Options{}},
		"bits": {inGroups(32, four), inGroups(32, eight),
			"int8, a scale for 32 elements", export.Options{}},
		"more bits": {inGroups(32, eight), inGroups(32, four),
			"int8, a scale for 32 elements", export.Options{}},
		"one is not quantized": {none, inGroups(32, four),
			"gate_proj (not quantized) and up_proj (int4, a scale for 32 elements)", export.Options{}},
		"the other is not": {inGroups(32, four), none,
			"gate_proj (int4, a scale for 32 elements) and up_proj (not quantized)", export.Options{}},
		"neither is quantized": {none, none, "F32", export.Options{}},
		"groups": {inGroups(32, four), inGroups(16, sdk.Integers(-7, 7, 16)),
			"gate_proj (int4, a scale for 32 elements) and up_proj (int4, a scale for 16 elements)",
			export.Options{}},
		"rows": {inGroups(64, sdk.Integers(-7, 7, 0)), inGroups(32, four),
			"gate_proj (int4, a scale for each row) and", export.Options{}},
		"groups, int8": {inGroups(32, four), inGroups(16, sdk.Integers(-7, 7, 16)),
			"gate_proj (int8, a scale for 32 elements) and", export.Options{Type: "int8"}},
		"numbers": {inGroups(32, sdk.E2M1(32)), inGroups(32, four),
			"gate_proj (nvfp4, a scale for 16 elements) and up_proj (int4", export.Options{}},
		"numbers, int8": {inGroups(32, sdk.E2M1(32)), inGroups(32, four),
			"int8, a scale for 32 elements", export.Options{Type: "int8"}},
		"floats in groups of 32 and 16": {inGroups(32, sdk.E2M1(32)), inGroups(16, sdk.E2M1(16)),
			"nvfp4, a scale for 16 elements", export.Options{}},
		"one is rotated": {rotated, inGroups(32, four),
			"gate_proj (not packed) and up_proj (int4, a scale for 32 elements)", export.Options{}},
		"floats": {none, inGroups(32, four), "F32", export.Options{Floats: true}},
		"floats of groups": {inGroups(32, four), inGroups(16, sdk.Integers(-7, 7, 16)), "F32",
			export.Options{Floats: true}},
		"rotated, floats": {inGroups(32, four), rotated, "F32", export.Options{Floats: true}},
	} {
		m := small(t, architecture.KindLlama,
			func(p architecture.Param, x []float32) *export.Quantized {
				of := map[string]func(architecture.Param, []float32) *export.Quantized{gate: c.gate, up: c.up}
				quantize, ok := of[p.Name]
				if !ok {
					return inGroups(32, four)(p, x)
				}
				q := quantize(p, x)
				if q != nil {
					q.Settings = p.Name
				}
				return q
			})
		if _, err := write(t, "mlx", m, c.options); err != nil && strings.Contains(err.Error(), "fuse") {
			t.Errorf("%s: mlx: %v", name, err)
		}
		r, err := write(t, "compressed-tensors", m, c.options)
		if err != nil {
			_, ok := errors.AsType[*export.WeightsError](err)
			if text := err.Error(); !ok || !strings.Contains(text, c.want) ||
				!strings.Contains(text, "--allow-floats") || !strings.Contains(text, "same quantizer") {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		for _, x := range r.Tensors {
			if (x.Param == gate || x.Param == up) && (x.Type != c.want || !r.Exact) {
				t.Errorf("%s: %s is %s, want %s; exact %v", name, x.Name, x.Type, c.want, r.Exact)
			}
		}
	}
}

// TestPackedHead checks that a head of integers is packed and named: vLLM does not count it as a
// linear layer.
func TestPackedHead(t *testing.T) {
	m := small(t, architecture.KindLlama, integers(32, halfSeventh))
	quantized := m.Quantized
	m.Quantized = func(name string) (*export.Quantized, error) {
		if name != "head" {
			return quantized(name)
		}
		i := slices.IndexFunc(m.Params, func(p architecture.Param) bool { return p.Name == name })
		return integers(32, halfSeventh)(m.Params[i], m.Params[i].Init(1)), nil
	}
	dir, r := exported(t, "compressed-tensors", m, export.Options{})
	f := tensors(t, dir, "model.safetensors")
	if _, err := f.Tensor("lm_head.weight_packed"); err != nil || !r.Exact {
		t.Errorf("exact %v, error %v", r.Exact, err)
	}
	config := entry(t, dir).(map[string]any)
	group := config["config_groups"].(map[string]any)["group_0"].(map[string]any)
	if got := fmt.Sprint(group["targets"], config["ignore"]); got != "[Linear lm_head] []" {
		t.Errorf("targets and ignored modules are %s", got)
	}
}

// TestBlocksOf64 checks that 2-bit integers, with and without the code 2 of the format, and E2M1
// with two levels of scales make a round trip through GGUF.
func TestBlocksOf64(t *testing.T) {
	wide := architecture.Settings{Kind: architecture.KindLlama, Hidden: 128}
	for _, low := range []int{-2, -1} {
		q := func(p architecture.Param, x []float32) *export.Quantized {
			q := integers(64, func(m float32) float32 { return halfSeventh(m) * 4 })(p, x)
			for i := range q.Codes {
				q.Codes[i] = max(int32(low), min(int32(low+3), q.Codes[i]))
				q.Value[i] = float32(q.Codes[i]) * q.Scale[i/64]
			}
			q.Grid = sdk.Integers(low, low+3, 64)
			return q
		}
		typesAre(t, smallOf(t, wide, q), "Q2_0")
	}
	over := func(global float32) func(architecture.Param, []float32) *export.Quantized {
		return fourBitFloats(t, 16, func(m []float32) (out []float32) {
			for i := range m {
				out = append(out, e4m3(byte(1+(i*37)%126))/global)
			}
			return out
		})
	}
	typesAre(t, smallOf(t, wide, over(4096)), "NVFP4")

	m := smallOf(t, wide, over(777.7))
	if _, err := write(t, "gguf", m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), `scale_form = "power_of_two"`) {
		t.Errorf("the global scale 777.7: %v", err)
	}
	r, err := write(t, "gguf", m, export.Options{Inexact: true, Type: "nvfp4"})
	if err != nil || r.Exact {
		t.Fatalf("inexact: exact, or error %v", err)
	}
	for _, x := range r.Tensors {
		if most := 2 * 448 * 6 / 777.0 * 0x1p-23; x.Quantized && x.Difference > most {
			t.Errorf("inexact: %s differs by %v, want at most %v", x.Name, x.Difference, most)
		}
	}
	if _, err := write(t, "gguf", small(t, architecture.KindLlama, over(4096)),
		export.Options{Type: "nvfp4"}); err == nil ||
		!strings.Contains(err.Error(), "rows of 96 elements") {
		t.Errorf("rows of 96: %v", err)
	}
	wide.Kind = architecture.KindQwen2 // llama.cpp b11549 computes NaN
	if _, err := write(t, "gguf", smallOf(t, wide, over(4096)), export.Options{}); err == nil ||
		!strings.Contains(err.Error(), "models of kind llama and qwen3") {
		t.Errorf("qwen2: %v", err)
	}
}

// TestTypesWithZeroPoints checks what formats make of groups with zero points, each with other
// codes. TestZeroPoints compares bytes.
func TestTypesWithZeroPoints(t *testing.T) {
	m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
		q := &export.Quantized{Grid: sdk.ZeroPoints(15, 32)}
		for i := range x {
			zero := i / 32 % 16
			q.Codes = append(q.Codes, int32(i*7%16-zero))
			q.Value = append(q.Value, float32(q.Codes[i])/8)
		}
		q.Scale = slices.Repeat([]float32{0.125}, len(x)/32)
		return q
	})
	for format, want := range map[string]string{
		"compressed-tensors": "int4, a scale for 32 elements, with zero points",
		"mlx":                "int4, a scale for 32 elements", "gguf": "Q5_0",
	} {
		_, r := exported(t, format, m, export.Options{})
		for _, x := range r.Tensors {
			if x.Quantized && (x.Type != want || x.Difference != 0) {
				t.Errorf("%s: %s is %s and differs by %v, want %s", format, x.Name, x.Type, x.Difference, want)
			}
		}
		told := slices.ContainsFunc(r.Notes,
			func(n string) bool { return strings.Contains(n, "zero points") })
		if !r.Exact || told != (format == "compressed-tensors") {
			t.Errorf("%s: exact is %t, notes %q", format, r.Exact, r.Notes)
		}
	}
}

func typesAre(t *testing.T, m *export.Model, want string) {
	t.Helper()
	roundTrip(t, m, export.Options{})
	_, r := exported(t, "gguf", m, export.Options{})
	for _, x := range r.Tensors {
		if x.Quantized && (x.Type != want || x.Difference != 0) {
			t.Errorf("%s is %s and differs by %v, want %s", x.Name, x.Type, x.Difference, want)
		}
	}
}

func Example() {
	fmt.Println(export.Formats())
	// Output: [compressed-tensors gguf hf mlx peft]
}

// TestCodes checks that codes of any numbers are derived from values and scales.
func TestCodes(t *testing.T) {
	third := float32(1) / 3
	negative := float32(math.Copysign(0, -1))
	integers, floats := sdk.Integers(-8, 8, 0), sdk.E2M1(0)
	for name, c := range map[string]struct {
		q       export.Quantized
		numbers sdk.Grid
		want    []int32 // nil: want an error
	}{
		"integers": {
			export.Quantized{Value: []float32{-8 * third, 0, 7 * third, third, 2, -2, 0, 0},
				Scale: []float32{third, 2}}, integers, []int32{-8, 0, 7, 1, 1, -1, 0, 0}},
		"one scale": {export.Quantized{Value: []float32{1, 2, 3, 4, 5, 6, 7, 8},
			Scale: []float32{1}}, integers, []int32{1, 2, 3, 4, 5, 6, 7, 8}},
		"groups": {export.Quantized{Value: []float32{1, 2, 6, 8, 0, 0, 5, 10},
			Scale: []float32{1, 2, 0, 5}}, sdk.Integers(-8, 8, 2), []int32{1, 2, 3, 4, 0, 0, 1, 2}},
		"four-bit floats": {
			export.Quantized{Value: []float32{1.5 * third, -6 * third, negative, 0.5 * third, 3, -1, 4, 0},
				Scale: []float32{third, 1}}, floats, []int32{3, 15, 8, 1, 5, 10, 6, 0}},
		"zeros of either sign": {export.Quantized{Value: []float32{0, negative, 0, 0, 1, 0, negative, 0},
			Scale: []float32{2, 1}}, floats, []int32{0, 8, 0, 0, 2, 0, 8, 0}},
		"other numbers": {export.Quantized{Value: []float32{0.3, 0, 0, 0, 0, 0, 0, 0},
			Scale: []float32{1}}, floats, nil},
		"below a zero scale": {export.Quantized{Value: []float32{1, 0, 0, 0, 0, 0, 0, 0},
			Scale: []float32{0, 1}}, integers, nil},
		"beyond the grid": {export.Quantized{Value: []float32{9, 0, 0, 0, 0, 0, 0, 0},
			Scale: []float32{1}}, integers, nil},
		"too many scales": {export.Quantized{Value: make([]float32, 8), Scale: make([]float32, 3)},
			integers, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.q.Grid = c.numbers
			g, err := export.NewGrid(&c.q, []int{2, 4})
			if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(g.Codes, c.want) {
				t.Fatalf("%+v, error %v, want %v", g, err, c.want)
			}
		})
	}
	if _, err := export.NewGrid(&export.Quantized{Grid: integers}, []int{4}); err == nil {
		t.Error("a vector is a grid")
	}
}
