package cage

import "github.com/cage-qat/cage/sdk/program"

// correction takes y, the point after the optimizer, to x_{t+1}. x is the point that the
// optimizer started from, after decay, and α the tensor's rate.
type correction func(s *step, x, y, α program.Value) program.Value

// correction is the one that the rule asks for.
func (r Rule) correction() correction {
	switch {
	case r.Quantizer == nil || r.Form != Decoupled:
		return (*step).noCorrection
	case r.Variant == Official:
		return (*step).correctAfterwards
	case r.forwardErrorServes():
		return (*step).correctByForwardError
	default:
		return (*step).correctLiterally
	}
}

// noCorrection is for rules without one. The coupled form has its correction in the gradient.
func (s *step) noCorrection(_, y, _ program.Value) program.Value { return y }

// correctAfterwards is the official variant: the residual is that of the point after the
// whole optimizer step, and the rate is the next one. The next rate of an optimizer with a
// rate of its own is not known yet, and its present one takes that place.
func (s *step) correctAfterwards(_, y, α program.Value) program.Value {
	if s.rule.Optimizer.Rate == nil {
		α = s.scaledRate(s.in[InputNextRate])
	}
	return s.correctLiterally(y, y, α)
}

// forwardErrorServes reports whether e at the decayed point follows from that at x_t,
// which the forward pass of the step has: either the two points are the same, or
// Q(c·x) = c·Q(x), and then e(c·x) = c·e(x) with c = 1 − α·ω.
func (r Rule) forwardErrorServes() bool { return !r.decaysFirst() || r.Quantizer.Homogeneous }

// correctByForwardError is correctLiterally without a second quantization.
func (s *step) correctByForwardError(_, y, α program.Value) program.Value {
	αλ := α.Mul(s.λ)
	e := s.finiteForwardError()
	if s.rule.decaysFirst() {
		αλ = αλ.Mul(s.decayFactor())
	}
	return y.Sub(e.Mul(αλ))
}

// quantizesAgain reports whether the program quantizes another point than x_t.
func (r Rule) quantizesAgain() bool {
	return r.Quantizer != nil && r.Form == Decoupled && (r.Variant == Official || !r.forwardErrorServes())
}

// rotateBack is Q(x_t) from the input quantized, which is H·Q(x_t) in a rule with a rotation.
func (r Rule) rotateBack(quantized program.Value) program.Value {
	if r.Rotation > 1 {
		return quantized.Hadamard(r.Rotation)
	}
	return quantized
}

// forwardError is e = x_t − Q(x_t) of the forward pass.
func (s *step) forwardError() program.Value {
	if !s.e.Valid() {
		s.e = s.x.Sub(s.rule.rotateBack(s.in[InputQuantized]))
	}
	return s.e
}

// finiteForwardError is e, or zeros if any element of it is not finite. The check looks at
// the quantized value before it is rotated back, which saves a rotation of the whole
// tensor ahead of the one that e needs: the sums of a rotation are finite where their
// terms are.
func (s *step) finiteForwardError() program.Value {
	if s.rule.Rotation <= 1 {
		return s.ifFinite(s.forwardError())
	}
	return s.zeroUnlessFinite(s.x.Sub(s.in[InputQuantized]), s.forwardError())
}

// ifFinite is e, or zeros if any element of it is not finite.
func (s *step) ifFinite(e program.Value) program.Value { return s.zeroUnlessFinite(e, e) }

// zeroUnlessFinite is e, or zeros if any element of x is not finite. Such a tensor is
// trained without a correction in this step, and counted.
func (s *step) zeroUnlessFinite(x, e program.Value) program.Value {
	s.finite = x.Square().SumAll().IsFinite()
	return s.finite.Select(e, s.b.Const(0))
}
