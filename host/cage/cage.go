package cage

import (
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// CAGE is curvature-aware gradient estimation (MLSys 2026): a step along the quantization error
// e = x − Q(x), with a weight λ_t that ramps up late in training.
type CAGE struct {
	None
	Form    Form
	Variant Variant
	// Strength is S = Σ α_t·λ_t over the run, from which [CAGE.Resolve] computes Lambda. If it is
	// nil, Lambda is configured. Only the decoupled form has a strength.
	Strength *float64
	// Lambda is the final weight λ ≥ 0.
	Lambda float64
	// Silence is the initial fraction s of the run, 0 ≤ s < 1, that has no correction.
	Silence float64
	Ramp    Ramp
}

// Default has the paper's setting for pre-training: decoupled, λ = 2, s = 0.9. Configurations have
// [DefaultStrength] instead of λ.
var Default = CAGE{Form: Decoupled, Variant: Paper, Lambda: 2, Silence: 0.9, Ramp: Linear}

// Form selects how the correction enters the step.
type Form string

// The forms of the correction.
const (
	// Off trains with the straight-through estimator alone.
	Off Form = "off"
	// Decoupled adds the correction after the optimizer, outside its preconditioning
	// (paper Eq. 5, Algorithm 1).
	Decoupled Form = "decoupled"
	// Coupled adds λ_t·e to the optimizer's gradient (paper §3.1, "Error coupling").
	Coupled Form = "coupled"
)

// Variant selects the point at which the decoupled correction computes its residual, and the
// learning rate that it uses.
type Variant string

// The variants of the decoupled form. The coupled form has only one.
const (
	// Paper computes e at the decayed point, before the optimizer's update, and multiplies it by
	// the rate α_t of the step (Algorithm 1).
	Paper Variant = "paper"
	// Official computes e at the point after the whole optimizer step and multiplies it by the rate
	// after the scheduler has advanced, α_{t+1}, as the authors' published code does.
	Official Variant = "official"
)

// Ramp is the shape of λ_t after the silent fraction of the run.
type Ramp string

// The shapes of the ramp.
const (
	Linear   Ramp = "linear"   // grows from 0 to λ at the last step (paper Eq. 6)
	Constant Ramp = "constant" // λ from the start; an option of the published code
)

func (m *CAGE) keys(form func() any) []schema.Key {
	of := []string{NameCAGE}
	return []schema.Key{
		{Name: "form", To: &m.Form, Is: schema.OneOf(Decoupled, Coupled, Off), For: of,
			Derive: form, Derived: `"decoupled"; "off" when no weight is quantized`,
			Doc: "where the correction enters: the step, the gradient, or nowhere"},
		{Name: "variant", To: &m.Variant, Is: schema.OneOf(Paper, Official), For: of,
			Default: Default.Variant,
			Doc: "decoupled form: the residual at the decayed point with the rate of the step " +
				"(paper), or after the step with the next rate (official)"},
		{Name: "lambda", To: &m.Lambda, Is: schema.Between(0, 1e6), For: measured,
			Default: Default.Lambda,
			Doc: "the weight λ at the end of the ramp, and of ‖P_λ‖, in place of strength; 0: no " +
				"correction. The default is that of the coupled form; in the decoupled form λ follows " +
				"from the default strength"},
		{Name: "silence", To: &m.Silence, Is: schema.Below(0, 1), For: of, Default: Default.Silence,
			Doc: "silence ratio s: fraction of the run before the correction starts"},
		{Name: "ramp", To: &m.Ramp, Is: schema.OneOf(Linear, Constant), For: of, Default: Default.Ramp,
			Doc: "shape of λ after the silence"},
	}
}

// Coefficient returns λ_t for the optimizer step t = 1…T with T = total (paper Eq. 6, Algorithm 1).
// Steps count from 1 as in the paper; the learning-rate schedule counts from 0.
//
// t/T is computed by a single division, so that λ_t is still 0 at t = s·T. After the last step λ_t
// stays at λ. It is always 0 if the form is off or total is not positive.
func (m CAGE) Coefficient(t, total int) float64 {
	if m.Form == Off || total <= 0 {
		return 0
	}
	r := float64(t) / float64(total) // r_t ← t/T
	if r <= m.Silence {
		return 0 // λ_t ← 0
	}
	if m.Ramp == Constant || r >= 1 {
		return m.Lambda
	}
	return m.Lambda * ((r - m.Silence) / (1 - m.Silence)) // λ_t ← λ·(r_t − s)/(1 − s)
}

// Modes returns the mode of the form; nil if the form is off.
func (m CAGE) Modes() []Mode {
	if m.Form == Off || m.Form == "" {
		return nil
	}
	return []Mode{Mode(m.Form)}
}

// Mode returns the mode of the form if λ_t > 0, and Idle otherwise.
func (m CAGE) Mode(at At) Mode {
	if at.Coefficient > 0 && len(m.Modes()) > 0 {
		return Mode(m.Form)
	}
	return Idle
}

// Reads requests the forward pass's Q(x) if the residual can be computed from it, as always in the
// coupled form. Otherwise the update quantizes again.
func (m CAGE) Reads(r Rule) Reads {
	if r.Factor {
		return Reads{}
	}
	official := m.Form == Decoupled && m.Variant == Official
	again := official || m.Form == Decoupled && !r.forwardErrorServes()
	return Reads{Quantized: !again, Requantized: again, NextRate: official}
}

// gradient returns, for the coupled form, g + λ_t·e_t (paper §3.1, "Error coupling").
func (m CAGE) gradient(s *writer, g program.Value) program.Value {
	if m.Form != Coupled {
		return g
	}
	return g.Add(s.finiteForwardError().Mul(s.λ))
}

// residual returns, for the decoupled form, the residual and the factor of the step along it. A
// tensor whose residual is not finite gets no correction.
func (m CAGE) residual(s *writer, x, y program.Value) (e, αλ program.Value) {
	if m.Form != Decoupled {
		return e, αλ
	}
	αλ = m.rate(s).Mul(s.λ)
	switch {
	case s.rule.Factor:
		return s.finiteForwardError(), αλ
	case m.Variant == Official: // after the optimizer's step, with the next rate
		return s.ifFinite(y.Sub(s.quantize(y))), αλ
	case !s.rule.forwardErrorServes():
		return s.ifFinite(x.Sub(s.quantize(x))), αλ
	}
	e = s.finiteForwardError()
	if s.rule.decaysFirst() {
		αλ = αλ.Mul(s.decayFactor())
	}
	return e, αλ
}

// rate returns the learning rate of the decoupled correction: the tensor's or, with a Strength, the
// schedule's, so that Σ α·λ does not depend on a tensor's RateFactor.
func (m CAGE) rate(s *writer) program.Value {
	α, scheduled := s.α, s.in[spec.InputRate]
	// The next rate of an optimizer with its own rates is not known yet.
	if m.Variant == Official && s.rule.Optimizer.Rate == nil {
		scheduled = s.in[InputNextRate]
		α = s.scaledRate(scheduled)
	}
	if m.Strength != nil && s.rule.RateFactor != 0 {
		return scheduled
	}
	return α
}

// forwardErrorServes reports whether e at the decayed point can be computed from e at x_t, which
// the forward pass provides: either the two points are the same, or Q(c·x) = c·Q(x), and then
// e(c·x) = c·e(x) with c = 1 − α·ω.
func (r Rule) forwardErrorServes() bool { return !r.decaysFirst() || r.Quantizer.Homogeneous }
