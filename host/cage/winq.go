package cage

import (
	"cmp"
	"errors"
	"math"

	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// WinQ pulls weights toward their grid in single steps, and takes gradients at weights with noise
// ("WinQ: Accelerating Quantization-Aware Training of LLMs around Saddle Points", Li et al. 2026,
// arXiv 2605.17471). After every k-th step
//
//	x ← κ·x + (1 − κ)·Q(x)
//
// and in training the model computes with Q(x + σ·ξ), ξ standard normal, new in each step; trained
// parameters of the quantizer get such noise, too. The gradient uses the surrogate at x + σ·ξ.
// Evaluation, and the mixture, are without noise. This follows the authors' code (facebookresearch/
// WinQ at 222385ef, utils/reinitialize_callback.py and models/utils_quant.py), which adds the noise
// before quantization (nso_pre_quantization_noise).
//
// Without noise it is the correction in bursts: every k-th step multiplies x − Q(x) by κ.
type WinQ struct {
	None
	Every int     // k: steps from one mixture to the next
	Kept  float64 // κ, the share of x in the mixture, from 0 to below 1
	Noise float64 // σ, at least 0
}

// DefaultWinQ holds the settings of the authors' script for one processor (scripts/1_run_train.sh).
var DefaultWinQ = WinQ{Every: 200, Kept: 0.2, Noise: 1e-3}

func (m *WinQ) keys() []schema.Key {
	of, d := []string{NameWinQ}, DefaultWinQ
	return []schema.Key{
		{Name: "mix_every", To: &m.Every, Is: schema.From(1, schema.Most), For: of, Default: d.Every,
			Doc: "steps from one mixture of x and Q(x) to the next"},
		{Name: "mix_kept", To: &m.Kept, Is: schema.Below(0, 1), For: of, Default: d.Kept,
			Doc: "share of x in the mixture; the rest is Q(x)"},
		{Name: "noise", To: &m.Noise, Is: schema.Between(0, 1e3), For: of, Default: d.Noise,
			Doc: "standard deviation of the noise that is added to weights before they are quantized in " +
				"training; 0: none"},
	}
}

const mixing Mode = "mixing"

// Modes returns the mode of a step with a mixture.
func (WinQ) Modes() []Mode { return []Mode{mixing} }

// Mode returns mixing for every k-th step.
func (m WinQ) Mode(at At) Mode {
	if at.Step%m.Every == 0 {
		return mixing
	}
	return Idle
}

// Softens reports whether the model computes with noise.
func (m WinQ) Softens() bool { return m.Noise > 0 }

// Reads requests Q(x_{t+1}) in steps with a mixture.
func (WinQ) Reads(Rule) Reads { return Reads{Requantized: true} }

func (m WinQ) after(s *writer, y program.Value) program.Value {
	return y.Sub(s.ifFinite(y.Sub(s.quantize(y))).Scale(1 - m.Kept))
}

// Forward returns the quantizer with noise in training.
func (m WinQ) Forward(w *Weight, _ int) (spec.Quantizer, error) {
	q := w.Quantizer
	if q.Draws() {
		return q, errors.New("its quantizer is stochastic, so the mixture with Q(x) is a random one")
	}
	if m.Noise == 0 {
		return q, nil
	}
	if len(q.State) > 0 || q.Backward != nil {
		return q, errors.New("its quantizer has state or a backward pass of its own, which the noise " +
			"does not support: want noise = 0")
	}
	b := program.NewBuilder("winq/" + q.Program.Name)
	own := 1 + len(q.Trained) // inputs with noise: x and the trained parameters
	var inputs []program.Value
	for _, in := range q.Program.Inputs[:own] {
		inputs = append(inputs, b.Input(in.Name, in.Type))
	}
	key := b.Input(spec.InputNoise, program.Type{DType: program.Uint, Shape: []int{2}})
	for i, x := range inputs {
		bits := key.Add(b.ConstUint(uint32(i) * roundingKey)) // other ones for each input
		inputs[i] = x.Add(normal(bits, x.Shape()).Scale(m.Noise))
	}
	for _, in := range q.Program.Inputs[own:] { // the number of the step, which comes after noise
		inputs = append(inputs, b.Input(in.Name, in.Type))
	}
	out := transform.Inline(b, q.Program, inputs...)
	for _, o := range q.Program.Outputs {
		b.Output(o.Name, out[o.Name])
	}
	q.Evaluate = cmp.Or(q.Evaluate, q.Program)
	var err error
	q.Homogeneous = false
	q.Program, err = b.Build()
	return q, err
}

// quantiles are those of the standard normal distribution in the middle of 4096 equal parts of
// probability, scaled to the variance 1.
var quantiles = func() []float64 {
	list, square := make([]float64, 4096), 0.0
	for i := range list {
		list[i] = math.Sqrt2 * math.Erfinv((2*float64(i)+1)/float64(len(list))-1)
		square += list[i] * list[i]
	}
	for i := range list {
		list[i] /= math.Sqrt(square / float64(len(list)))
	}
	return list
}()

// normal returns standard normal numbers: one of the quantiles for 12 random bits.
func normal(key program.Value, shape []int) program.Value {
	b := key.Builder()
	index := b.RandomBits(key, shape...).Shr(b.ConstUint(20)).Convert(program.Int)
	return index.Lookup(b.Table(quantiles, len(quantiles)))
}
