package cage

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Average is a running mean x̄ of a trained tensor over the steps of a training, with which the
// model is evaluated and exported. With x_t the tensor after step t and F = From:
//
//	x̄_t = x_t                            t ≤ F
//	x̄_t = x̄_{t−1} + w·(x_t − x̄_{t−1})    t > F
//
// The weight w is 1 − Decay (exponential moving average, Polyak and Juditsky 1992; as in QuEST's
// training code), or 1/(t − F + 1), which makes x̄_t the mean of x_F…x_t (Izmailov et al. 2018,
// "SWA"). A step that is skipped changes neither x nor x̄, and counts in t.
type Average struct {
	Uniform bool    // w = 1/(t − F + 1)
	Decay   float64 // if not Uniform; in [0, 1)
	From    int     // F ≥ 1
}

// AverageState is the name of x̄ among the state tensors of a rule.
const AverageState = "average.x"

func (s *step) averaged(x program.Value) {
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

// InitPrograms returns the programs that make the state of the rule from x: that of the optimizer,
// and that of the average. Other state begins with zeros.
func (r Rule) InitPrograms() (list []*program.Program) {
	if r.Optimizer.Init != nil {
		list = append(list, r.Optimizer.Init)
	}
	if r.Average != nil {
		list = append(list, r.copies("average/", spec.InputX, spec.StatePrefix+AverageState))
	}
	return list
}

// EvaluationProgram returns a program for the tensor that the model is evaluated with in place of
// x; nil means x itself.
func (r Rule) EvaluationProgram() *program.Program {
	if r.Average != nil {
		return r.copies("averaged/", spec.StatePrefix+AverageState, spec.OutputWeights)
	}
	return r.Optimizer.Evaluate
}

func (r Rule) copies(prefix, from, to string) *program.Program {
	b := program.NewBuilder(prefix + r.Name)
	b.Output(to, b.Input(from, program.FloatType(r.Shape...)))
	p, err := b.Build()
	if err != nil {
		panic(err) // of constant names, and a shape that the optimizer's programs have, too
	}
	return p
}
