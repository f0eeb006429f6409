package cage

import (
	"errors"

	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// OsciReset resets weights that oscillate between two adjacent grid points to their current one
// (TetraJet-v2, Chen et al. 2025, arXiv 2510.27527). A weight near a rounding threshold crosses it
// repeatedly with tiny steps: Q(x), which the model uses, moves much farther than x does.
//
// As in the authors' code (thu-ml/TetraJet-v2-NVFP4Training at ca5953f6,
// olmo2-training/olmo/quantization_real, oscillation_reset.py and calibrate.py, detect_type
// "distance_ratio"), a period of Every steps begins with a window of Window steps. During the
// window the path lengths of x and Q(x) are accumulated for each weight,
//
//	d_Q ← d_Q + |Q(x_{t+1}) − Q(x_t)|
//	d   ← d + |x_{t+1} − x_t|
//
// and in the step after the window, weights with d_Q/d ≥ Threshold are set to Q(x_{t+1}). All other
// steps are the same as without the method. If the optimizer rounds weights to bfloat16,
// that happens after the reset.
//
// The authors count steps from 0, so that step t = 1 begins a period there and here. The first
// period begins at the first multiple of Every that is at or after Start. A tensor with an element
// that is not finite is not reset.
type OsciReset struct {
	None
	Start     float64 // fraction of the run before the first period, 0 ≤ Start < 1
	Every     int     // steps of a period
	Window    int     // steps in which path lengths are measured; at most Every − 2
	Threshold float64 // minimum d_Q/d of a weight that is reset, at least 1
}

// DefaultOsciReset holds the authors' settings for training 150M parameters (configs/150m_100bt,
// TJv2-mix_fp8-osci_reset.yaml): from step 15,000 of 25,500, 50 steps of every 200, ratio 8.
var DefaultOsciReset = OsciReset{Start: 0.6, Every: 200, Window: 50, Threshold: 8}

func (m *OsciReset) keys() []schema.Key {
	of, d := []string{NameOsciReset}, DefaultOsciReset
	return []schema.Key{
		{Name: "reset_start", To: &m.Start, Is: schema.Below(0, 1), For: of, Default: d.Start,
			Doc: "fraction of the run before the first reset of oscillating weights"},
		{Name: "reset_every", To: &m.Every, Is: schema.From(3, schema.Most), For: of, Default: d.Every,
			Doc: "steps from one reset to the next"},
		{Name: "reset_window", To: &m.Window, Is: schema.From(1, schema.Most), For: of, Default: d.Window,
			Doc: "steps before a reset in which the path lengths of x and of Q(x) are measured; " +
				"at most reset_every − 2"},
		{Name: "reset_threshold", To: &m.Threshold, Is: schema.Between(1, 1e12), For: of,
			Default: d.Threshold,
			Doc:     "minimum ratio of the path length of Q(x) to that of x at which a weight is reset"},
	}
}

// The modes of OsciReset in addition to Idle.
const (
	tracking  Mode = "tracking"
	resetting Mode = "resetting"
)

// Modes returns the mode of the window and the mode of the step after it.
func (OsciReset) Modes() []Mode {
	return []Mode{tracking, resetting}
}

// Mode depends on the position of the step in its period.
func (m OsciReset) Mode(at At) Mode {
	done := at.Step - 1 // updates before this one: the authors' step index
	first := (int(m.Start*float64(at.Steps)) + m.Every - 1) / m.Every * m.Every
	in := done % m.Every
	switch {
	case done < first || in == 0 || in > m.Window+1:
		return Idle
	case in == m.Window+1:
		return resetting
	}
	return tracking
}

// Resets reports whether a step resets weights.
func (m OsciReset) Resets(at At) bool { return m.Mode(at) == resetting }

// The names of d_Q and d among the state tensors of a rule.
const (
	quantizedPath = "oscireset.quantized"
	weightPath    = "oscireset.weight"
)

const countReset = "weights_set_back"

// State returns d_Q and d.
func (OsciReset) State(shape []int) []spec.Tensor {
	return []spec.Tensor{{Name: quantizedPath, Shape: shape}, {Name: weightPath, Shape: shape}}
}

// Forward returns the quantizer unchanged. It returns an error if the quantizer is stochastic: the
// distance between random values of Q(x) does not measure oscillation.
func (OsciReset) Forward(w *Weight, _ int) (spec.Quantizer, error) {
	if w.Quantizer.Draws() {
		return w.Quantizer, errors.New("its quantizer is stochastic, so Q(x) moves even if x does not")
	}
	return w.Quantizer, nil
}

// Softens returns false: the model computes with Q(x).
func (OsciReset) Softens() bool { return false }

// Reads requests Q(x_{t+1}) and, in the window, Q(x_t).
func (OsciReset) Reads(r Rule) Reads {
	return Reads{Quantized: r.Mode == tracking, Requantized: true}
}

func (m OsciReset) after(s *writer, y program.Value) program.Value {
	q := s.quantize(y)
	quantized, weight := s.state[quantizedPath], s.state[weightPath]
	if s.rule.Mode == tracking {
		before := rotated(s.in[InputQuantized], s.rule.Rotation)
		s.state[quantizedPath] = quantized.Add(q.Sub(before).Abs())
		s.state[weightPath] = weight.Add(y.Sub(s.x).Abs())
		return y
	}
	zero := s.b.Const(0)
	s.state[quantizedPath] = s.b.Zeros(s.rule.Shape...)
	s.state[weightPath] = s.b.Zeros(s.rule.Shape...)
	s.ifFinite(y.Sub(q))
	ratio := weight.Gt(zero).Select(quantized.Div(weight), zero)
	oscillates := ratio.Ge(s.b.Const(m.Threshold)).And(s.finite)
	s.counts[countReset] = sum(oscillates.Convert(program.Float))
	return oscillates.Select(q, y)
}
