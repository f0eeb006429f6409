package cage

import "github.com/cage-qat/cage/sdk/program"

// Program returns the program that updates one tensor in one step: the loop body of Algorithm 1,
// with any optimizer in place of AdamW (Eq. 5) and any method in place of the correction. Comments
// at the ends of lines quote the algorithm. The correction is never clipped; the decoupled
// correction never enters the optimizer's state.
func (r Rule) Program() (*program.Program, error) {
	if r.Frozen {
		return r.statistics()
	}
	s, method := r.begin("update/", r.Inputs()), r.active()
	if r.RateFactor == 0 { // 0·u would be NaN where u is not finite, or α may be the optimizer's own
		s.α = s.rate
		s.output(s.x)
		return s.build()
	}
	g := s.gradient()                 // compute stochastic gradient g_t with quantized forward pass
	s.setRate(g)                      // α_t is the schedule's, or the optimizer's own
	x := s.decayFirst(s.x)            // x_t ← (1 − α·ω)·x_t
	u := s.direction(x, g)            // m_t, v_t, m̂_t and v̂_t, all inside the optimizer
	y := x.Sub(u.Mul(s.α))            // x̃_{t+1} ← x_t − α·m̂_t/(√v̂_t + ε); in general α·u
	y = s.decayLast(y)                // not in the paper; see Rule.DecayLast
	e, αλ := method.residual(s, x, y) // e_t ← x_t − Q(x_t)
	if e.Valid() {
		y = y.Sub(e.Mul(αλ)) // x_{t+1} ← x̃_{t+1} − α·λ_t·e_t
	}
	y = method.after(s, y) // not in the paper: other methods
	s.output(s.finish(y))  // not in the paper: constraints and rounding
	return s.build()
}
