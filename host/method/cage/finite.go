package cage

import "github.com/cage-qat/cage/sdk/program"

// ifFinite is e, or zeros if any element of it is not finite.
func (s *step) ifFinite(e program.Value) program.Value { return s.zeroUnlessFinite(e, e) }

// zeroUnlessFinite is e, or zeros if any element of x is not finite. Such a tensor is
// trained without a correction in this step, and counted.
func (s *step) zeroUnlessFinite(x, e program.Value) program.Value {
	s.finite = x.Square().SumAll().IsFinite()
	return s.finite.Select(e, s.b.Const(0))
}
