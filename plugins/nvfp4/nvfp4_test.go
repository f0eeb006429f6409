package main

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/fpmodel"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// forward has the settings of the forward product, which uses no random numbers.
var forward = map[string]any{"weight_blocks": blocksOfRows, "rounding": microscaling.RoundNearest,
	"signs": microscaling.SignsFixed, "rotated_products": rotateAll}

// with returns given, completed by the settings of forward.
func with(given map[string]any) map[string]any {
	all := maps.Clone(forward)
	maps.Copy(all, given)
	return all
}

// TestConformance compares with values of a script for the format, and of the authors' code for
// Four Over Six and for training. It covers each rule for ties and, beside the kit's combinations,
// a long rotation. The reference implementation, too, rounds the scale of the tensor to binary32,
// so that only powers of two scale exactly, as ties claims.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, nvfp4{}, plugintest.Kit(t, "kit", sdktest.With(forward),
		sdktest.GoldenFile(t, "testdata/fouroversix.json"),
		sdktest.GoldenFile(t, "testdata/training.json"))...)
	if testing.Short() {
		return // the rest covers other settings
	}
	var list []map[string]any
	for _, ties := range microscaling.TiesNames() {
		list = append(list, map[string]any{"ties": ties, "rotation": microscaling.NoRotation})
	}
	for _, given := range append(list, map[string]any{"rotation": "16"},
		map[string]any{"rotation": "128"}) {
		given["scale_rule"] = ruleSix
		options := plugintest.Fixed(t, nvfp4{}, with(given))
		t.Run(fmt.Sprint(given), func(t *testing.T) { sdktest.Quantizer(t, nvfp4{}, options...) })
	}
}

// TestTraining runs the kit with settings of training.
func TestTraining(t *testing.T) {
	testlevel.Long(t, "checks all that a plugin promises, three times")
	plain := map[string]any{"scale_rule": ruleSix, "ties": "even", "scale_form": formDecode,
		"rotation": microscaling.NoRotation}
	for _, changed := range []map[string]any{
		{"weight_blocks": squareBlocks, "scale_rule": ruleMSE},
		{"rounding": microscaling.RoundStochastic, "rotation": "16", "signs": microscaling.SignsRandom},
		{"rotation": "16", "signs": signsPublished},
	} {
		given := with(plain)
		maps.Copy(given, changed)
		t.Run(fmt.Sprint(changed),
			func(t *testing.T) { sdktest.Quantizer(t, nvfp4{}, plugintest.Fixed(t, nvfp4{}, given)...) })
	}
}

// TestLayer compares the three products of a layer with those of the authors' own code, for the
// settings of examples/nvfp4-training.toml without stochastic rounding, which their reference does
// not have.
func TestLayer(t *testing.T) {
	values := plugintest.Settings(t, nvfp4{}.Describe(), map[string]any{
		"weight_blocks": squareBlocks, "rotation": "16", "signs": signsPublished,
		"rotated_products": rotateWeightGradient})
	plugintest.EachCase(t, "layer", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		quantize := func(product sdk.Product, role sdk.Role, x golden.Array) mat.Matrix {
			q, err := sdk.BuildQuantizer(nvfp4{},
				sdk.Site{Product: product, Role: role, Name: "w", Shape: x.Shape, Values: values})
			if err != nil {
				t.Fatal(err)
			}
			out := m.Run(t, q.Program,
				map[string]reference.Tensor{spec.InputX: reference.Floats(x.Data, x.Shape...)})
			return mat.NewDense(x.Shape[0], x.Shape[1], out[spec.OutputValue].Float64s())
		}
		product := func(key string, a, b mat.Matrix) {
			var y mat.Dense
			y.Mul(a, b.T())
			m.Close(c.Expected, key, y.RawMatrix().Data, single)
		}
		x, w, dy := c.Inputs.Array("x"), c.Inputs.Array("w"), c.Inputs.Array("dy")
		product("y", quantize(sdk.ProductForward, sdk.RoleActivation, x),
			quantize(sdk.ProductForward, sdk.RoleWeight, w))
		product("dx", quantize(sdk.ProductInputGradient, sdk.RoleGradient, dy),
			quantize(sdk.ProductInputGradient, sdk.RoleWeight, turned(w)))
		product("dw", quantize(sdk.ProductWeightGradient, sdk.RoleGradient, turned(dy)),
			quantize(sdk.ProductWeightGradient, sdk.RoleActivation, turned(x)))
	})
}

// turned returns the transpose of a matrix.
func turned(x golden.Array) golden.Array {
	rows, columns := x.Shape[0], x.Shape[1]
	out := golden.Array{Shape: []int{columns, rows}, Data: make([]float64, len(x.Data))}
	for i, v := range x.Data {
		out.Data[i%columns*rows+i/columns] = v
	}
	return out
}

// TestSquares checks that a square of 16 rows and columns, smaller at the edges, has one scale, and
// that the transpose of a weight has the transposed values.
func TestSquares(t *testing.T) {
	const rows, columns = 20, 40
	x := plugintest.Normal(7, rows, columns)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, rule := range []string{ruleSix, ruleMSE} {
			given := map[string]any{"weight_blocks": squareBlocks, "scale_rule": rule}
			q, qt := m.Quantize(t, nvfp4{}, given, x), m.Quantize(t, nvfp4{}, given, turned(x))
			plugintest.Near(t, rule+": the transpose", qt.Value,
				turned(golden.Array{Shape: x.Shape, Data: q.Value}).Data, 1e-7)
			for r := range rows {
				for c := range (columns + block - 1) / block {
					if got, want := q.Scale[r*3+c], q.Scale[r/block*block*3+c]; got != want {
						t.Errorf("%s: row %d, block %d: the scale %v, want %v", rule, r, c, got, want)
					}
				}
			}
		}
	})
}

// TestOperands checks which operands are rotated, and which have square blocks.
func TestOperands(t *testing.T) {
	values := plugintest.Settings(t, nvfp4{}.Describe(),
		map[string]any{"rotation": "16", "signs": signsPublished,
			"rotated_products": rotateWeightGradient, "weight_blocks": squareBlocks})
	for _, c := range []struct {
		product          sdk.Product
		role             sdk.Role
		rotates, squares bool
	}{
		{sdk.ProductForward, sdk.RoleActivation, false, false},
		{sdk.ProductForward, sdk.RoleWeight, false, true},
		{sdk.ProductInputGradient, sdk.RoleGradient, false, false},
		{sdk.ProductInputGradient, sdk.RoleWeight, false, true},
		{sdk.ProductWeightGradient, sdk.RoleGradient, true, false},
		{sdk.ProductWeightGradient, sdk.RoleActivation, true, false},
	} {
		q, err := sdk.BuildQuantizer(nvfp4{}, sdk.Site{Product: c.product, Role: c.role, Name: "w",
			Shape: []int{32, 32}, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		text := q.Program.String()
		if rotates, squares := strings.Contains(text, "hadamard"), strings.Contains(text,
			"axes=[1] "); rotates != c.rotates || squares != c.squares {
			t.Errorf("%s of %s: rotates %t, has squares %t, want %t and %t:\n%s", c.role, c.product, rotates,
				squares, c.rotates, c.squares, text)
		}
	}
	plugintest.RefusesWeight(t, nvfp4{}, map[string]any{"signs": "random"},
		"have no effect without a rotation", 2, 96)
	plugintest.RefusesWeight(t, nvfp4{}, map[string]any{"signs": signsPublished, "rotation": "32"},
		`need rotation = "16", but rotation is "32"`, 2, 96)
}

// TestQuartetII compares the forward product's operands of Quartet II with the authors' code
// (plugins/mseden/testdata/quartet2.py).
func TestQuartetII(t *testing.T) {
	plugintest.EachCase(t, "quartet2", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		given := map[string]any{"scale_rule": ruleMSE, "ties": string(microscaling.TiesAway)}
		m.Close(c.Expected, "value", m.Quantize(t, nvfp4{}, given, c.Inputs.Array("x")).Value, single)
	})
}

// TestFourOrSix checks a case computed by hand, with g = 1. With the maximum on the level 6, 5 is
// halfway between two levels and becomes 4. With 6 on the level 4, 5 is 10/3 of the scale 1½, and
// becomes 4½.
func TestFourOrSix(t *testing.T) {
	x := golden.Array{Shape: []int{1, 32}, Data: make([]float64, 32)}
	x.Data[0], x.Data[16], x.Data[17] = 1536, 6, 5
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, nvfp4{}, map[string]any{"scale_rule": ruleMSE}, x)
		plugintest.Near(t, "scale", q.Scale, []float64{256, 1.5}, 0)
		plugintest.Near(t, "value", q.Value[16:18], []float64{6, 4.5}, 0)
	})
}

// TestModel compares rows of many lengths, with blocks of very different sizes, with model.
func TestModel(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, d := range []int{1, 3, 15, 16, 17, 31, 33, 128, 640} {
			x := plugintest.Normal(uint64(d), 4, d)
			for i := range x.Data {
				x.Data[i] *= math.Ldexp(1, -i/block%14) // down to blocks that become zero
			}
			for _, given := range settings() {
				got := m.Quantize(t, nvfp4{}, given, x)
				value, codes, scale := model(x.Data, d, given)
				what := fmt.Sprintf("%v, rows of %d: ", given, d)
				plugintest.Near(t, what+"codes", got.Codes, codes, 0)
				plugintest.Near(t, what+"value", got.Value, value, 1e-7)
				plugintest.Near(t, what+"scale", got.Scale, scale, 1e-7)
			}
		}
	})
}

// settings returns the settings that TestModel tries.
func settings() (list []map[string]any) {
	for _, ties := range microscaling.TiesNames() {
		list = append(list, map[string]any{"ties": ties})
	}
	for _, rule := range []string{ruleSix, ruleMSE} {
		for _, form := range []string{formEncode, formPower} {
			list = append(list, map[string]any{"scale_rule": rule, "scale_form": form})
		}
	}
	return append(list, map[string]any{"scale_rule": ruleMSE},
		map[string]any{"scale_rule": ruleMSE, "ties": "down"})
}

// TestVanishingBlock checks that the scale of a block with the maximum 6·g·2⁻¹⁰, a tie, is rounded
// to zero, and that of a slightly larger block to the smallest nonzero scale.
func TestVanishingBlock(t *testing.T) {
	x := golden.Array{Shape: []int{1, 48}, Data: make([]float64, 48)}
	x.Data[0] = 2688 // g = 1
	for i := range 16 {
		x.Data[16+i] = -6 * 0x1p-10
		x.Data[32+i] = 6 * 0x1p-10 * 1.001
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, nvfp4{}, nil, x)
		plugintest.Near(t, "scale", q.Scale, []float64{448, 0, 0x1p-9}, 0)
		// The second block has −0; in the third, 3.003·2⁻⁹ becomes the level 3·2⁻⁹.
		if q.Codes[16] != 8 || q.Value[16] != 0 || q.Codes[32] != 5 || q.Value[32] != 3*0x1p-9 {
			t.Errorf("codes %v and %v, values %v and %v", q.Codes[16], q.Codes[32], q.Value[16], q.Value[32])
		}
	})
}

// TestExtremes checks tensors at both ends of the range of binary32.
func TestExtremes(t *testing.T) {
	for name, c := range map[string]float64{"large": math.MaxFloat32, "tiny": 0x1p-140,
		"least": 0x1p-149} {
		x := golden.Array{Shape: []int{1, 20}, Data: make([]float64, 20)}
		for i := range x.Data {
			x.Data[i] = c * float64(1-2*(i%2))
		}
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			// The scale of a block may be rounded up by a sixteenth if that of the tensor is a power of two.
			for form, most := range map[string]float64{formDecode: 1.001, formPower: 1.07} {
				if form == formPower && name == "large" {
					continue // would be infinite
				}
				for i, v := range m.Quantize(t, nvfp4{}, map[string]any{"scale_form": form}, x).Value {
					if math.IsNaN(v) || math.Abs(v) > most*c {
						t.Errorf("%s, %s: %v becomes %v", name, form, x.Data[i], v)
					}
				}
			}
		})
	}
}

// TestRotation checks that Hx is quantized, and that the gradient passes unchanged.
func TestRotation(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, order := range []int{16, 32, 64, 128} {
			x := plugintest.Normal(1, 3, 256)
			plain := m.Quantize(t, nvfp4{}, nil, plugintest.Hadamard(x, order))
			turned := m.Quantize(t, nvfp4{}, map[string]any{"rotation": fmt.Sprint(order)}, x)
			plugintest.Near(t, "codes", turned.Codes, plain.Codes, 0)
			back := golden.Array{Shape: x.Shape, Data: plain.Value}
			plugintest.Near(t, "value", turned.Value, plugintest.Hadamard(back, order).Data, single)
			plugintest.Near(t, "gradient", turned.Gradient(t, x.Data), x.Data, 0)
		}
	})
}

// TestResidual checks that the backward pass keeps only whether the tensor is finite.
func TestResidual(t *testing.T) {
	kept := plugintest.Residuals(t, nvfp4{}, map[string]any{"rotation": "16"}, 4, 96)
	if len(kept) != 1 || !kept[0].Equal(program.Type{DType: program.Bool}) {
		t.Errorf("residuals %v, want one bool", kept)
	}
}

func TestBadRotation(t *testing.T) {
	plugintest.RefusesWeight(t, nvfp4{}, map[string]any{"rotation": "64"},
		"blocks of 64 do not divide the row length 96; the largest that do have 32", 2, 96)
}

// TestEncodeIsExact checks that with scale_form = "encode" every scale is, to the last bit of
// binary32, an E4M3 number divided by one number, which exports store, and every value an E2M1
// number times the scale.
func TestEncodeIsExact(t *testing.T) {
	for seed := range uint64(20) {
		x := plugintest.Normal(seed, 8, 64)
		given, reach := map[string]any{"scale_form": formEncode}, float32(2688)
		if seed >= 15 {
			given["scale_rule"], reach = ruleMSE, 1536
		}
		q := plugintest.CPU(t).Quantize(t, nvfp4{}, given, x)
		g := reach / float32(floats.Norm(x.Data, math.Inf(1)))
		for i, s := range q.Scale {
			at := fpmodel.Nearest(s*float64(g), eights, microscaling.TiesEven)
			if float32(eights[at])/g != float32(s) {
				t.Fatalf("seed %d: the scale %v is no E4M3 number over %v", seed, s, g)
			}
			for j := range block {
				code := int(q.Codes[i*block+j])
				want := float32(fpmodel.Magnitudes[code%8]) * float32(s)
				if got := float32(math.Abs(q.Value[i*block+j])); got != want {
					t.Fatalf("seed %d: the value %v has code %d and scale %v", seed, got, code, s)
				}
			}
		}
	}
	zero := plugintest.CPU(t).Quantize(t, nvfp4{}, map[string]any{"scale_form": formEncode},
		golden.Array{Shape: []int{1, 16}, Data: make([]float64, 16)})
	plugintest.Near(t, "value of zeros", zero.Value, make([]float64, 16), 0)
}

// TestPowerIsExact checks that with scale_form = "power_of_two" every value is a bfloat16, and
// every scale an E4M3 number times a power of two. The largest of these E4M3 numbers is at least
// 224, or 128 with the rule mse.
func TestPowerIsExact(t *testing.T) {
	for rule, least := range map[string]float64{ruleSix: 224, ruleMSE: 128} {
		for seed := range uint64(20) {
			x := plugintest.Normal(seed, 8, 64)
			q := plugintest.CPU(t).
				Quantize(t, nvfp4{}, map[string]any{"scale_form": formPower, "scale_rule": rule}, x)
			for _, v := range q.Value {
				if math.Float32bits(float32(v))&0xffff != 0 {
					t.Fatalf("%s, seed %d: the value %v is not a bfloat16", rule, seed, v)
				}
			}
			g := math.Exp2(math.Ceil(math.Log2(floats.Norm(x.Data, math.Inf(1)) / (12 * least))))
			for _, s := range q.Scale {
				if e := eights[fpmodel.Nearest(s/g, eights, microscaling.TiesEven)]; e != s/g {
					t.Fatalf("%s, seed %d: the scale %v is no E4M3 number times %v", rule, seed, s, g)
				}
			}
			if floats.Max(q.Scale)/g < least {
				t.Errorf("%s, seed %d: the largest scale is %v times %v", rule, seed, floats.Max(q.Scale)/g, g)
			}
		}
	}
}

// single bounds the errors of binary32, relative to the largest value of the tensor: two scales,
// and two rotations of 16, give a few units of 6e-8.
const single = 1e-6

// TestScales checks that the scale of a block is the product of both scales of the format, and that
// codes and scales encode ẑ, the rotated tensor. The kit checks the rest of the file.
func TestScales(t *testing.T) {
	plugintest.EachCase(t, "nvfp4", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		given := map[string]any{"ties": c.Params.String("ties")}
		if c.Params.Int("hblock") > 0 {
			given["rotation"] = c.Params.String("hblock")
		}
		x := c.Inputs.Array("x")
		q := m.Quantize(t, nvfp4{}, given, x)
		m.Close(c.Expected, "zhat", fpmodel.Decode(q.Codes, q.Scale, x.Shape[len(x.Shape)-1], block),
			single)
		tensor, block := twoScales(t, m, c.Expected.Array("zhat").Shape,
			microscaling.Rotation(max(1, c.Params.Int("hblock"))), x)
		m.Close(c.Expected, "tensor_scale", tensor, single)
		c.Expected.Exact("block_scales", block)
		for i, s := range q.Scale {
			plugintest.Near(t, "scale", []float64{s}, []float64{block[i] * tensor[0]}, 1e-7)
		}
		for i, on := range q.Mask {
			if on != 1 {
				t.Errorf("mask %v at %d: all entries pass", on, i)
			}
		}
	})
}

// twoScales returns g and the block scales sB of x, which the plugin multiplies.
func twoScales(
	t *testing.T, m plugintest.Bench, shape []int, rotation microscaling.Rotation, x golden.Array,
) (tensor, blocks []float64) {
	t.Helper()
	out := m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		site := sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape,
			Values: plugintest.Settings(t, nvfp4{}.Describe(), nil)}
		s := newScales(microscaling.NewBlocks(shape, block).Split(rotation.Apply(in[0])), site)
		return []program.Value{s.tensor, s.block}
	}, reference.Floats(x.Data, shape...))
	return out[0], out[1]
}

func TestE4M3(t *testing.T) {
	golden.Load(t, "testdata/nvfp4.json").
		RunList(t, "e4m3_rounding", func(t *testing.T, o golden.Object) {
			plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
				y := m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
					return []program.Value{microscaling.RoundE4M3(in[0])}
				}, reference.Float(o.Float("x")))[0]
				plugintest.Near(t, "y", y, []float64{o.Float("y")}, 0)
			})
		})
}

// TestHandCheck checks a tensor computed by hand: g is a little more than 12/2688, the scale of the
// block a little more than 2, and −7 lies just below the tie of 3½. In binary32 it lies on the tie.
func TestHandCheck(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{12, -7, 1.3, 0.1}}
	q := plugintest.Reference().Quantize(t, nvfp4{}, nil, x)
	plugintest.Near(t, "value", q.Value, []float64{12, -6, 1, 0}, 1e-7)
	plugintest.Near(t, "codes", q.Codes, []float64{7, 13, 1, 0}, 0)
	q = plugintest.CPU(t).Quantize(t, nvfp4{}, nil, x)
	plugintest.Near(t, "value in binary32", q.Value, []float64{12, -8, 1, 0}, 1e-7)
}
