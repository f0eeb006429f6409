package cage

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// OsciReset sets weights that oscillate between two points of their grid back to the point where
// they are (TetraJet-v2, Chen et al. 2025, arXiv 2510.27527). A weight near the edge of two cells
// crosses it again and again with tiny steps: what the model sees, Q(x), moves much farther than x
// does.
//
// As in the authors' code (thu-ml/TetraJet-v2-NVFP4Training at ca5953f6,
// olmo2-training/olmo/quantization_real, oscillation_reset.py and calibrate.py, detect_type
// "distance_ratio"), a period of Every steps begins with a window of Window steps. In the window of
// a period both ways are measured for each weight,
//
//	d_Q ← d_Q + |Q(x_{t+1}) − Q(x_t)|
//	d   ← d + |x_{t+1} − x_t|
//
// and in the step that follows, a weight with d_Q/d ≥ Threshold is set to Q(x_{t+1}). The other
// steps are those of a training without the method. With an optimizer whose weights are rounded to
// bfloat16, that follows the reset.
//
// The authors count steps from 0, so that the step t = 1 begins a period there and here. A period
// begins at the first multiple of Every that is at or after Start. A tensor with an element that is
// not finite is not reset.
type OsciReset struct {
	None
	Start     float64 // fraction of the run before the first period, 0 ≤ Start < 1
	Every     int     // steps of a period
	Window    int     // steps in which ways are measured; at most Every − 2
	Threshold float64 // least ratio of the ways of a weight that is set back, at least 1
	By        string  // byRatio; another form was removed, and Edge with it
	Edge      float64
}

// The values of method.reset_by. Configurations of before may have byEdge.
const (
	byRatio = "distance_ratio"
	byEdge  = "bin_edge"
)

// DefaultOsciReset is the setting of the authors' training of 150M parameters (configs/150m_100bt,
// TJv2-mix_fp8-osci_reset.yaml): from step 15,000 of 25,500, 50 steps of every 200, ratio 8.
var DefaultOsciReset = OsciReset{Start: 0.6, Every: 200, Window: 50, Threshold: 8, By: byRatio, Edge: 0.495}

func (m *OsciReset) keys() []schema.Key {
	of := []string{NameOsciReset}
	return []schema.Key{
		{Name: "reset_start", To: &m.Start, Is: schema.Below(0, 1), For: of, Default: DefaultOsciReset.Start,
			Doc: "fraction of the run before weights that oscillate are set back"},
		{Name: "reset_every", To: &m.Every, Is: schema.From(3, schema.Most), For: of, Default: DefaultOsciReset.Every,
			Doc: "steps from one reset to the next"},
		{Name: "reset_window", To: &m.Window, Is: schema.From(1, schema.Most), For: of, Default: DefaultOsciReset.Window,
			Doc: "steps before a reset in which the ways of x and of Q(x) are measured; at most reset_every − 2"},
		{Name: "reset_threshold", To: &m.Threshold, Is: schema.Between(1, 1e12), For: of, Default: DefaultOsciReset.Threshold,
			Doc: "how many times the way of x the way of Q(x) must be"},
		{Name: "reset_by", To: &m.By, Is: schema.OneOf(byRatio, byEdge), For: of, Default: DefaultOsciReset.By,
			Doc: "which weights are set back: those whose Q(x) moves farther than x in a window of steps (distance_ratio); bin_edge cannot be trained any more"},
		{Name: "reset_edge", To: &m.Edge, Is: schema.Between(0, 1), For: of, Default: DefaultOsciReset.Edge,
			Doc: "has no effect any more"},
	}
}

// The modes of OsciReset beside Idle.
const (
	tracking  Mode = "tracking"
	resetting Mode = "resetting"
)

// Modes are those of the window, and of the step after it.
func (OsciReset) Modes() []Mode {
	return []Mode{tracking, resetting}
}

// Mode follows from where the step is in its period.
func (m OsciReset) Mode(at At) Mode {
	done := at.Step - 1 // updates before this one: the authors' step number
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

// Resets reports whether a step sets weights back.
func (m OsciReset) Resets(at At) bool { return m.Mode(at) == resetting }

// The names of d_Q and d among the state tensors of a rule.
const (
	wayOfQuantized = "oscireset.quantized"
	wayOfWeight    = "oscireset.weight"
)

const countReset = "weights_set_back"

// State is the two ways.
func (OsciReset) State(shape []int) []spec.Tensor {
	return []spec.Tensor{{Name: wayOfQuantized, Shape: shape}, {Name: wayOfWeight, Shape: shape}}
}

// Forward is the quantizer as it is, if it has one Q(x): how far random points are apart says
// nothing.
func (m OsciReset) Forward(w *Weight, _ int) (spec.Quantizer, error) {
	if m.By == byEdge {
		return w.Quantizer, fmt.Errorf("reset_by = %q is not supported any more: use %q", byEdge, byRatio)
	}
	if w.Quantizer.Draws() {
		return w.Quantizer, errors.New("its quantizer draws noise, with which Q(x) moves where x does not")
	}
	return w.Quantizer, nil
}

// Softens is false: the model computes with Q(x).
func (OsciReset) Softens() bool { return false }

// Reads: the window needs Q(x_t) and Q(x_{t+1}), a reset the latter.
func (OsciReset) Reads(r Rule) Reads { return Reads{Quantized: r.Mode == tracking, Again: true} }

func (m OsciReset) after(s *step, y program.Value) program.Value {
	q := s.quantize(y)
	quantized, weight := s.state[wayOfQuantized], s.state[wayOfWeight]
	if s.rule.Mode == tracking {
		s.state[wayOfQuantized] = quantized.Add(q.Sub(s.rule.rotateBack(s.in[InputQuantized])).Abs())
		s.state[wayOfWeight] = weight.Add(y.Sub(s.x).Abs())
		return y
	}
	zero := s.b.Const(0)
	s.state[wayOfQuantized], s.state[wayOfWeight] = s.b.Zeros(s.rule.Shape...), s.b.Zeros(s.rule.Shape...)
	s.ifFinite(y.Sub(q))
	ratio := weight.Gt(zero).Select(quantized.Div(weight), zero)
	oscillates := ratio.Ge(s.b.Const(m.Threshold)).And(s.finite)
	s.counts[countReset] = sum(oscillates.Convert(program.Float))
	return oscillates.Select(q, y)
}
