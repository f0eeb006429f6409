package cage

import "github.com/cage-qat/cage/sdk/program"

// decaysFirst reports whether the optimizer gets a decayed x.
func (r Rule) decaysFirst() bool { return r.Decay > 0 && !r.DecayLast }

// decayFirst is x after the weight decay that precedes the optimizer.
func (s *step) decayFirst(x program.Value) program.Value {
	if s.rule.decaysFirst() {
		return x.Mul(s.keep())
	}
	return x
}

// decayLast is y after the weight decay that follows the optimizer.
func (s *step) decayLast(y program.Value) program.Value {
	if s.rule.Decay > 0 && s.rule.DecayLast {
		return y.Mul(s.keep())
	}
	return y
}

// keep is 1 − α·ω, what weight decay leaves of x.
func (s *step) keep() program.Value { return s.b.Const(1).Sub(s.α.Scale(s.rule.Decay)) }

// scaled is a rate of the schedule times the tensor's factor.
func (s *step) scaled(rate program.Value) program.Value {
	if f := s.rule.RateFactor; f != 1 {
		return rate.Scale(f)
	}
	return rate
}
