package cage

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// OsciReset sets weights that oscillate between two points of their grid back to the point where they are (TetraJet-v2, Chen et
// al. 2025, arXiv 2510.27527). A weight near the edge of two cells crosses it again and again with tiny steps: what the model
// sees, Q(x), moves much farther than x does.
//
// As in the authors' code (thu-ml/TetraJet-v2-NVFP4Training at ca5953f6, olmo2-training/olmo/quantization_real,
// oscillation_reset.py and calibrate.py, detect_type "distance_ratio"), a period of Every steps begins with a window of Window
// steps. In the window of a period both ways are measured for each weight,
//
//	d_Q ← d_Q + |Q(x_{t+1}) − Q(x_t)|
//	d   ← d + |x_{t+1} − x_t|
//
// and in the step that follows, a weight with d_Q/d ≥ Threshold is set to Q(x_{t+1}). The other steps are those of a training
// without the method. With an optimizer whose weights are rounded to bfloat16, that follows the reset.
//
// The authors' other form, detect_type "bin_edge", measures no ways. In the first step of a period, a weight is set to Q(x_{t+1}) if
//
//	|x_{t+1} − Q(x_{t+1})| > Edge·b
//
// where b is the width of the bin of its level: the mean of the distances to the levels next to it, of which a level at the end of
// the grid has one. In a quantizer that ends in a rotation all this is before that, where the grid is. Where a level does not
// stand in the middle of its bin, as 2 and 4 in E2M1, weights on its narrow side are not set back, as in the authors' code.
//
// The authors count steps from 0, so that the step t = 1 begins a period there and here. A period begins at the first multiple
// of Every that is at or after Start. A tensor with an element that is not finite is not reset.
type OsciReset struct {
	None
	Start     float64 // fraction of the run before the first period, 0 ≤ Start < 1
	Every     int     // steps of a period
	Window    int     // steps in which ways are measured; at most Every − 2
	Threshold float64 // least ratio of the ways of a weight that is set back, at least 1
	By        string  // ByRatio or ByEdge
	Edge      float64 // part of the width of a bin
}

// The forms of OsciReset.
const (
	ByRatio = "distance_ratio"
	ByEdge  = "bin_edge"
)

// DefaultOsciReset is the setting of the authors' training of 150M parameters (configs/150m_100bt,
// TJv2-mix_fp8-osci_reset.yaml): from step 15,000 of 25,500, 50 steps of every 200, ratio 8. Edge is that of their config.py.
var DefaultOsciReset = OsciReset{Start: 0.6, Every: 200, Window: 50, Threshold: 8, By: ByRatio, Edge: 0.495}

func (m *OsciReset) keys() []schema.Key {
	of := []string{NameOsciReset}
	return []schema.Key{
		{Name: "reset_start", To: &m.Start, Is: schema.Below(0, 1), For: of, Default: DefaultOsciReset.Start,
			Doc: "fraction of the run before weights that oscillate are set back"},
		{Name: "reset_every", To: &m.Every, Is: schema.From(3, schema.Most), For: of, Common: true, Default: DefaultOsciReset.Every,
			Doc: "steps from one reset to the next"},
		{Name: "reset_window", To: &m.Window, Is: schema.From(1, schema.Most), For: of, Common: true, Default: DefaultOsciReset.Window,
			Doc: "steps before a reset in which the ways of x and of Q(x) are measured; at most reset_every − 2"},
		{Name: "reset_threshold", To: &m.Threshold, Is: schema.Between(1, 1e12), For: of, Common: true, Default: DefaultOsciReset.Threshold,
			Doc: "how many times the way of x the way of Q(x) must be"},
		{Name: "reset_by", To: &m.By, Is: schema.OneOf(ByRatio, ByEdge), For: of, Default: DefaultOsciReset.By,
			Doc: "which weights are set back: those of which Q(x) goes a longer way than x in a window of steps (distance_ratio), or those that are near to the edge of their bin in the first step of a period (bin_edge)"},
		{Name: "reset_edge", To: &m.Edge, Is: schema.Between(0, 1), For: of, Default: DefaultOsciReset.Edge,
			Doc: "with bin_edge: part of the width of a bin by which x must be farther from Q(x)"},
	}
}

// The modes of OsciReset beside Idle.
const (
	tracking  Mode = "tracking"
	resetting Mode = "resetting"
)

// Modes are those of the window, and of the step after it.
func (m OsciReset) Modes() []Mode {
	if m.By == ByEdge {
		return []Mode{resetting}
	}
	return []Mode{tracking, resetting}
}

// Mode follows from where the step is in its period.
func (m OsciReset) Mode(at At) Mode {
	done := at.Step - 1 // updates before this one: the authors' step number
	first := (int(m.Start*float64(at.Steps)) + m.Every - 1) / m.Every * m.Every
	in := done % m.Every
	switch {
	case m.By == ByEdge && done >= first && in == 0:
		return resetting
	case m.By == ByEdge || done < first || in == 0 || in > m.Window+1:
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

// countReset is what OsciReset counts.
const countReset = "weights_set_back"

// State is the two ways.
func (m OsciReset) State(shape []int) []spec.Tensor {
	if m.By == ByEdge {
		return nil
	}
	return []spec.Tensor{{Name: wayOfQuantized, Shape: shape}, {Name: wayOfWeight, Shape: shape}}
}

// Forward is the quantizer as it is, if it has one Q(x): ways between points that are drawn say nothing. For edges its levels must be
// known, and those of evaluations be those of training.
func (m OsciReset) Forward(w *Weight, _ int) (spec.Quantizer, error) {
	q := w.Quantizer
	if q.Draws() {
		return q, errors.New("its quantizer draws noise, with which Q(x) moves where x does not")
	}
	if m.By == ByEdge {
		if len(q.Trained)+len(q.State) > 0 {
			return q, fmt.Errorf(`edges of bins are found for quantizers without trained parameters and state: use reset_by = %q`, ByRatio)
		}
		if _, err := w.levels(); err != nil {
			return q, fmt.Errorf(`the edges of its bins need the levels of the grid, and %w: use reset_by = %q, or another quantizer`, err, ByRatio)
		}
	}
	return q, nil
}

// Softens is false: the model computes with Q(x).
func (OsciReset) Softens() bool { return false }

// Reads: the window needs Q(x_t) and Q(x_{t+1}), a reset the latter.
func (OsciReset) Reads(r Rule) Reads { return Reads{Quantized: r.Mode == tracking, Again: true} }

func (m OsciReset) after(s *step, y program.Value) program.Value {
	if m.By == ByEdge {
		return m.fromEdges(s, y)
	}
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

// fromEdges sets back weights that are near to the edge of their bin.
func (m OsciReset) fromEdges(s *step, y program.Value) program.Value {
	w := s.rule.Weight
	l, err := w.levels()
	if err != nil {
		s.b.Fail(err)
		return y
	}
	out := s.quantized(y)
	x, q := w.rotate(y), w.rotate(out[spec.OutputValue])
	s.ifFinite(y.Sub(out[spec.OutputValue]))
	scale := w.scale(s.b, l, out)
	far := x.Sub(q).Abs().Gt(binWidth(s.b, l, q.Div(scale)).Mul(scale.Abs()).Scale(m.Edge))
	near := far.And(scale.Ne(s.b.Const(0))).And(s.finite)
	s.counts[countReset] = sum(near.Convert(program.Float))
	if w.Rotation > 1 { // what is not set back stays as it is to the last bit
		return y.Add(w.rotate(near.Select(q.Sub(x), s.b.Const(0))))
	}
	return near.Select(q, y)
}

// binWidth is the width of the bin of each level in r, which may be off by rounding: how far it is from the middle between the levels below
// to that above, where a level at the end of the grid has the same distance on both sides.
func binWidth(b *program.Builder, l Levels, r program.Value) program.Value {
	n := len(l.Numbers)
	if l.Uniform() {
		return b.Const(l.Numbers[1] - l.Numbers[0])
	}
	width := func(i int) float64 {
		below, above := max(i-1, 0), min(i+1, n-1)
		return (l.Numbers[above] - l.Numbers[below]) / float64(above-below)
	}
	all := b.Const(width(0))
	for i := 1; i < n; i++ {
		middle := (l.Numbers[i-1] + l.Numbers[i]) / 2
		all = all.Add(r.Gt(b.Const(middle)).Select(b.Const(width(i)-width(i-1)), b.Const(0)))
	}
	return all
}
