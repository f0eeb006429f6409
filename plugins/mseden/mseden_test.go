package main

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance runs the kit with the default settings, the authors' values and the claim that
// the mean is x, and again with the other rotations.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, mseden{}, plugintest.Kit(t, "mseden")...)
	if testing.Short() {
		return
	}
	for _, rotation := range []string{"64", "128"} {
		given := map[string]any{"rotation": rotation}
		t.Run(rotation, func(t *testing.T) {
			sdktest.Quantizer(t, mseden{}, plugintest.Fixed(t, mseden{}, given)...)
		})
	}
}

// TestLayer compares the gradients of a layer with those of the authors' code, whose forward
// product uses nvfp4 with Four Over Six.
func TestLayer(t *testing.T) {
	plugintest.EachCase(t, "layer", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		x, w, dy, keys := c.Inputs.Array("xq"), c.Inputs.Array("wq"), c.Inputs.Array("dy"),
			c.Inputs.Lists("noise")
		shared := c.Inputs.Array("shared").Data
		q := func(i int, x golden.Array) golden.Array {
			return golden.Array{Shape: x.Shape, Data: draw(t, m, nil, x, keys[i], shared)}
		}
		m.Close(c.Expected, "dx", plugintest.Product(q(0, dy), q(1, plugintest.Transposed(w))).Data, 1e-6)
		m.Close(c.Expected, "dw",
			plugintest.Product(q(2, plugintest.Transposed(dy)), q(3, plugintest.Transposed(x))).Data, 1e-6)
	})
}

// draw returns Q(x) with the given keys.
func draw(
	t *testing.T, m plugintest.Bench, given map[string]any, x golden.Array, noise, shared []float64,
) []float64 {
	t.Helper()
	built := plugintest.BuildQuantizer(t, mseden{}, given, x.Shape...)
	key := func(k []float64) reference.Tensor {
		return reference.Uints([]uint32{uint32(k[0]), uint32(k[1])}, 2)
	}
	out := m.Run(t, built.Program, map[string]reference.Tensor{
		spec.InputX: reference.Floats(x.Data, x.Shape...), spec.InputNoise: key(noise),
		spec.InputSharedNoise: key(shared),
	})
	return out[spec.OutputValue].Float64s()
}

// TestBias computes the mean of Q(x) over many keys on the CPU. The mean of ⟨x, Q(x)⟩/‖x‖² must be
// below 1, but by at most a thousandth; with rounding to nearest alone, it is below by eight
// thousandths. The distance of the whole mean from x must be at most two standard errors.
func TestBias(t *testing.T) {
	const rows, draws = 64, 500
	m, x := plugintest.CPU(t), plugintest.Normal(1, rows, 128)
	given := map[string]any{"rotation": "128"}
	sum, squares := make([]float64, len(x.Data)), make([]float64, len(x.Data))
	kept, keptSquares := 0.0, 0.0
	for i := range draws {
		along, size := 0.0, 0.0
		for j, v := range draw(t, m, given, x, []float64{float64(i), 1}, []float64{float64(i), 2}) {
			off := v - x.Data[j]
			sum[j] += off
			squares[j] += off * off
			along += off * x.Data[j]
			size += x.Data[j] * x.Data[j]
		}
		kept += along / size
		keptSquares += along / size * along / size
	}
	mean := kept / draws
	single := math.Sqrt((keptSquares/draws - mean*mean) / draws)
	off, noise := 0.0, 0.0
	for j := range sum {
		off += sum[j] / draws * sum[j] / draws
		noise += squares[j] / draws / draws
	}
	t.Logf("magnitudes: %+.6f ± %.6f; all: %.3f standard errors", mean, single, math.Sqrt(off/noise))
	if !(math.Abs(mean) <= 5*single+1e-3) {
		t.Errorf("magnitudes are off by %.6f, with a standard error of %.6f", mean, single)
	}
	if !(mean <= -5*single) {
		t.Errorf("magnitudes are off by %.6f: the comment promises a bias", mean)
	}
	if r := math.Sqrt(off / noise); !(r <= 2) {
		t.Errorf("the mean is %.2f standard errors from x", r)
	}
}

// TestProducts checks that operands that share a rotation, and are not nearly parallel, have
// uncorrelated errors, so that the mean of their product is the product. The rows here have a
// correlation of 1/2.
func TestProducts(t *testing.T) {
	const rows, draws = 64, 300
	m, x, y := plugintest.CPU(t), plugintest.Normal(1, rows, 128), plugintest.Normal(2, rows, 128)
	dot := func(a, b []float64) float64 { return floats.Dot(a, b) / float64(rows*128) }
	for i := range y.Data {
		y.Data[i] = float64(float32(x.Data[i]/2 + math.Sqrt(0.75)*y.Data[i]))
	}
	want, sum, squares := dot(x.Data, y.Data), 0.0, 0.0
	given := map[string]any{"rotation": "128"}
	for i := range draws {
		k, shared := float64(i), []float64{float64(i), 3}
		off := dot(draw(t, m, given, x, []float64{k, 1}, shared),
			draw(t, m, given, y, []float64{k, 2}, shared)) - want
		sum += off
		squares += off * off
	}
	mean := sum / draws
	single := math.Sqrt((squares/draws - mean*mean) / draws)
	t.Logf("%.4f %+.6f ± %.6f", want, mean, single)
	if !(math.Abs(mean) <= 5*single && single <= want/1000) {
		t.Errorf("the product %.4f is off by %.6f, with a standard error of %.6f", want, mean, single)
	}
}

// TestEvaluation checks that evaluation uses no random numbers.
func TestEvaluation(t *testing.T) {
	built := plugintest.BuildQuantizer(t, mseden{}, nil, 2, 64)
	if built.Evaluate == nil || len(built.Evaluate.Inputs) != 1 {
		t.Error("evaluation takes noise")
	}
}

func TestBadRotation(t *testing.T) {
	plugintest.RefusesWeight(t, mseden{}, map[string]any{"rotation": "128"},
		"blocks of 128 do not divide the row length 96; the largest that do have 32", 2, 96)
}
