package cage

import "github.com/cage-qat/cage/sdk/program"

// LambdaAt returns λ_t for the optimizer step t = 1…T of total T (paper Eq. 6, Algorithm
// 1). Steps count from 1 as in the paper; those of the learning rate count from 0.
//
// The progress is computed as one division, so that the step with t = s·T is still
// silent. Past the end λ_t stays at λ. It is 0 if the form is off, or if total is not
// positive.
func (m Method) LambdaAt(t, total int) float64 {
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

// Program returns the program of one step of one tensor: the body of the loop of
// Algorithm 1, with any optimizer in place of AdamW (Eq. 5). Comments at the ends of
// lines give the paper's lines. The correction is never clipped; decoupled, it never
// enters the optimizer's state.
func (r Rule) Program() (*program.Program, error) { return r.write(r.correction()) }

// write writes the step with the given correction.
func (r Rule) write(correct correction) (*program.Program, error) {
	s := r.begin("update/", r.Inputs())
	g := s.gradient()         // compute stochastic gradient g_t with quantized forward pass
	s.setRate(g)              // α_t is the schedule's, or the optimizer's own
	x := s.decayFirst(s.x)    // x_t ← (1 − α·ω)·x_t
	u := s.direction(x, g)    // m_t, v_t, m̂_t and v̂_t, all inside the optimizer
	y := x.Sub(u.Mul(s.α))    // x̃_{t+1} ← x_t − α·m̂_t/(√v̂_t + ε); in general α·u
	y = s.decayLast(y)        // not in the paper; see Rule.DecayLast
	y = correct(s, x, y, s.α) // e_t and x_{t+1}: correctLiterally, or what replaces it
	y = s.constrain(y)        // not in the paper: trained parameters of quantizers may have a constraint
	s.output(s.round(y))      // not in the paper: see sdk.Rounded
	return s.build()
}

// correctLiterally is the decoupled correction as the algorithm has it; y is x̃_{t+1}. A
// tensor whose residual is not finite gets none.
func (s *step) correctLiterally(x, y, α program.Value) program.Value {
	αλ := α.Mul(s.λ)
	e := x.Sub(s.quantize(x))           // e_t ← x_t − Q(x_t)
	return y.Sub(s.ifFinite(e).Mul(αλ)) // x_{t+1} ← x̃_{t+1} − α·λ_t·e_t
}
