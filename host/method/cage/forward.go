package cage

import "github.com/cage-qat/cage/sdk/program"

// restore is Q(x_t) from the input quantized, which is H·Q(x_t) in a rule with a rotation.
func (r Rule) restore(quantized program.Value) program.Value {
	if r.Rotation > 1 {
		return quantized.Hadamard(r.Rotation)
	}
	return quantized
}

// forwardError is e = x_t − Q(x_t) of the forward pass.
func (s *step) forwardError() program.Value {
	if !s.e.Valid() {
		s.e = s.x.Sub(s.rule.restore(s.in[InputQuantized]))
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
