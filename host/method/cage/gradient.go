package cage

import "github.com/cage-qat/cage/sdk/program"

// gradient is the gradient that the optimizer sees: that of the task, clipped; in the
// coupled form plus λ_t·e_t (paper §3.1, "Error coupling"); with LOTION plus the slope of
// its regularizer. Only the task's is clipped.
func (s *step) gradient() program.Value {
	g := s.in[InputGradient]
	if s.rule.Clip {
		g = g.Mul(s.in[InputClip])
	}
	if s.rule.Form == Coupled && s.rule.Quantizer != nil {
		g = g.Add(s.finiteForwardError().Mul(s.λ))
	}
	if s.rule.regularized() {
		terms := s.rule.Lotion.regularize(s.b, s.x, g, s.state[fisherState])
		g, s.state[fisherState] = terms.gradient, terms.fisher
	}
	return g
}
