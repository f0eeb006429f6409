package cage

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Average is a running mean x̄ of a trained tensor over training steps, which evaluation and export
// use in place of the tensor. With x_t the tensor after update t and F = From:
//
//	x̄_t = x_t                            t ≤ F
//	x̄_t = x̄_{t−1} + w·(x_t − x̄_{t−1})    t > F
//
// The weight w is 1 − Decay (exponential moving average, Polyak and Juditsky 1992; as in QuEST's
// training code), or 1/(t − F + 1), which makes x̄_t the mean of x_F…x_t (Izmailov et al. 2018,
// "SWA"). A skipped step is no update: it changes neither x nor x̄, and does not count in t.
type Average struct {
	Uniform bool    // w = 1/(t − F + 1)
	Decay   float64 // if not Uniform; in [0, 1)
	From    int     // F ≥ 1
}

// AverageState is the name of x̄ among the state tensors of a rule.
const AverageState = "average.x"

// average computes the next mean, if the rule has one.
func (s *writer) average(x program.Value) {
	a := s.rule.Average
	if a == nil {
		return
	}
	t, mean := s.in[spec.InputStep], s.state[AverageState]
	w := s.b.Const(1 - a.Decay)
	if a.Uniform {
		one := s.b.Const(1)
		w = one.Div(t.Shift(float64(1 - a.From)).Max(one))
	}
	next := mean.Add(x.Sub(mean).Mul(w))
	s.state[AverageState] = t.Gt(s.b.Const(float64(a.From))).Select(next, x)
}
