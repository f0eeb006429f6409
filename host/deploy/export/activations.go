package export

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Activation is a quantized input of layers.
type Activation struct {
	Name  string
	Feeds []string // names of the weights that multiply it
	Width int      // features of a token
	// Rows is the number of tokens that Quantize takes at once.
	Rows int
	// Quantize returns Q(x) for x of shape [Rows, Width], in float32.
	Quantize func(x []float32) ([]float32, error)
}

// activationScheme is the way in which programs that load compressed-tensors quantize the input of
// a layer at run time: one of the types of weights, or "" if they do not.
type activationScheme string

// entry returns the value of "input_activations" in a group of the configuration.
func (s activationScheme) entry() any {
	switch s {
	case "":
		return nil
	case typeMXFP4:
		return map[string]any{"num_bits": 4, "type": "float", "symmetric": true, "strategy": "group",
			"group_size": mxfp4Block, "dynamic": true, "scale_dtype": "torch.uint8"}
	}
	return map[string]any{"num_bits": scheme{typ: string(s)}.bits(), "type": "int", "symmetric": true,
		"strategy": "token", "group_size": nil, "dynamic": true}
}

// quantize quantizes the features of one token as those programs do.
func (s activationScheme) quantize(x []float32) {
	if s == typeMXFP4 {
		for block := range slices.Chunk(x, mxfp4Block) {
			quantizeMX(block)
		}
		return
	}
	// compressed-tensors 0.20, calculate_qparams: the range of 2^bits − 1 steps extends to the
	// largest magnitude on both sides.
	bits := scheme{typ: string(s)}.bits()
	steps := float32(int(1)<<bits - 1)
	scale := largest(x) / (steps / 2)
	if scale == 0 {
		return
	}
	low := -float64(int(1) << (bits - 1))
	for i, v := range x {
		x[i] = float32(min(max(math.RoundToEven(float64(v/scale)), low), -low-1)) * scale
	}
}

// quantizeMX quantizes one block. compressed-tensors 0.20 rounds the largest magnitude to one
// binary digit after the point, and takes its exponent.
func quantizeMX(x []float32) {
	m := float64(largest(x))
	if m == 0 {
		return
	}
	fraction, exponent := math.Frexp(m) // m = fraction·2^exponent, ½ ≤ fraction < 1
	if fraction >= 1.75/2 {
		exponent++
	}
	scale := math.Ldexp(1, exponent-1-2) // 2: the exponent of the largest number of E2M1
	for i, v := range x {
		x[i] = float32(roundE2M1(float64(v)/scale) * scale)
	}
}

// roundE2M1 rounds to the nearest number of E2M1, ties to the even code.
func roundE2M1(v float64) float64 {
	best, size := 0, math.Abs(v)
	for code := range 8 {
		d, least := math.Abs(size-float64(e2m1[code])), math.Abs(size-float64(e2m1[best]))
		if d < least || d == least && code%2 == 0 {
			best = code
		}
	}
	return math.Copysign(float64(e2m1[best]), v)
}

func largest(x []float32) float32 {
	m := float32(0)
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

// schemeOfActivation finds the scheme that quantizes an activation as in training. It compares the
// outputs of the scheme and of the quantizer on a probe; they must be equal bit for bit.
func schemeOfActivation(a Activation) (activationScheme, error) {
	x := probe(a.Rows, a.Width)
	got, err := a.Quantize(slices.Clone(x))
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.Name, err)
	}
	var faults []string
	for _, s := range []activationScheme{typeMXFP4, typeInt4, typeInt8} {
		if s == typeMXFP4 && a.Width%mxfp4Block != 0 {
			continue
		}
		want := slices.Clone(x)
		for token := range slices.Chunk(want, a.Width) {
			s.quantize(token)
		}
		differ := 0
		for i := range want {
			if got[i] != want[i] {
				differ++
			}
		}
		if differ == 0 {
			return s, nil
		}
		faults = append(faults, fmt.Sprintf("as %s %d of %d numbers differ", s, differ, len(want)))
	}
	return "", fmt.Errorf("%s: programs that load the file would quantize it in another way than the "+
		"training (%s)", a.Name, strings.Join(faults, ", "))
}

// probe returns the input on which activation quantizers are compared: tokens of different
// magnitudes, some with outlier features, of one sign, or with zeros.
func probe(rows, width int) []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, rows*width)
	for row := range rows {
		size := math.Ldexp(1+rng.Float64(), rng.IntN(12)-6)
		for i := range width {
			v := rng.NormFloat64() * size
			switch {
			case row%4 == 1 && i%37 == 0:
				v *= 30
			case row%4 == 2:
				v = math.Abs(v)
			case row%4 == 3 && i < width/2:
				v = 0
			}
			x[row*width+i] = float32(v)
		}
	}
	return x
}

// activations returns the schemes of quantized activations by the weights that multiply them.
func activations(m *Model) (map[string]activationScheme, error) {
	list, err := m.Activations()
	if err != nil {
		return nil, err
	}
	schemes := map[string]activationScheme{}
	for _, a := range list {
		s, err := schemeOfActivation(a)
		if err != nil {
			return nil, err
		}
		for _, param := range a.Feeds {
			schemes[param] = s
		}
	}
	return schemes, nil
}
