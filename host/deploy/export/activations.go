package export

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk/spec"
)

// Activation is the quantizer of the input of a layer.
type Activation struct {
	Width int // elements of a row
	// Quantize returns the values and scales of one row, as in evaluation.
	Quantize func(row []float32) (value, scale []float32, err error)
}

// inputs says whether vLLM and transformers quantize the inputs of a layer as the run does, in
// MXFP4 or NVFP4. Their rules are those of compressed-tensors 0.20
// (quantization/utils/mxfp_utils.py and quantization/lifecycle/forward.py).
type inputs struct {
	quantized bool
	// global is the reciprocal of NVFP4's scale of the tensor; 0 for MXFP4.
	global float32
}

// probes is the number of rows by which rules are compared.
const probes = 16

// halfway are the numbers between the levels of E2M1.
var halfway = []float64{0.25, -0.75, 1.25, -1.75, 2.5, -3.5, 5}

// inputsOf compares a with the rule of these programs for the inputs of a layer whose weight has
// the given type. Nothing is known of the quantizer but its values, so they are compared for rows
// of random numbers, of numbers halfway between two levels, and with a very large one.
func inputsOf(a *Activation, typ string) (inputs, error) {
	block := map[string]int{typeMXFP4: mxfp4Block, typeNVFP4: nvfp4Block}[typ]
	if block == 0 || a.Width%block != 0 {
		return inputs{}, nil
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var rows, values [][]float32
	var scale []float32 // of the last row
	for probe := range probes {
		row := make([]float32, a.Width)
		for i := range row {
			v := rng.NormFloat64()
			if probe%2 == 1 { // numbers halfway between two levels, at scales that are powers of two
				if v = halfway[(i+i/block)%len(halfway)]; i%block == 0 {
					v = 6
				}
			}
			row[i] = float32(math.Ldexp(v, (i/block+probe)%8-4))
		}
		if probe == probes-1 {
			row[0] = 0x1p100 // so that its block has the largest scale
		}
		value, s, err := a.Quantize(row)
		if err != nil {
			return inputs{}, err
		}
		rows, values, scale = append(rows, row), append(values, value), s
	}
	follows := func(rule func(largest float32) float32) bool {
		for i, row := range rows {
			if !slices.Equal(values[i], servedInputs(row, block, rule)) {
				return false
			}
		}
		return true
	}
	if typ == typeMXFP4 {
		return inputs{quantized: follows(servedMXFP4)}, nil
	}
	if len(scale) != a.Width/block {
		return inputs{}, nil
	}
	for _, global := range around(448 / scale[0]) {
		if follows(func(largest float32) float32 { return servedNVFP4(largest, global) }) {
			return inputs{true, global}, nil
		}
	}
	return inputs{}, nil
}

// servedInputs quantizes blocks of a row to E2M1, ties to even, with the scale that rule gives for
// the largest magnitude of a block.
func servedInputs(row []float32, block int, rule func(largest float32) float32) (out []float32) {
	for some := range slices.Chunk(row, block) {
		largest := float32(0)
		for _, v := range some {
			largest = max(largest, v, -v)
		}
		scale := rule(largest)
		for _, v := range some {
			code := nearest(v, scale, spec.Grid{Format: spec.FormatE2M1})
			out = append(out, e2m1[code]*scale)
		}
	}
	return out
}

// servedMXFP4 returns a power of two: that of the largest magnitude, or the next one from 1.75
// times it on, over 4.
func servedMXFP4(largest float32) float32 {
	fraction, exponent := math.Frexp(float64(largest))
	if fraction >= 1.75/2 {
		exponent++
	}
	return float32(math.Ldexp(1, exponent-1-2))
}

// servedNVFP4 returns an E4M3 number over the global scale.
func servedNVFP4(largest, global float32) float32 {
	return e4m3Numbers[nearestE4M3(largest/6*global)] / global
}
