package cage

import "github.com/cage-qat/cage/sdk/program"

// measure declares the scalar outputs beside x and the state.
func (s *step) measure() {
	if s.rule.Statistics {
		s.b.Output(OutputErrorNorm2, sumOfSquares(s.forwardError()))
		s.b.Output(OutputValueNorm2, sumOfSquares(s.x))
	}
	if s.rule.corrects() {
		s.b.Output(OutputUncorrected, s.finite.Not().Convert(program.Float))
	}
}

// OutputNorm2 is the name of the output of [ParetoNorm2].
const OutputNorm2 = "norm2"

// ParetoNorm2 returns a program for the squared length of one tensor's share of the
// stationarity measure (paper Eq. 2)
//
//	P_λ(x) = ∇f(x) + λ·(x − Q(x)).
//
// Its inputs are gradient, x, quantized (as the rule has it) and lambda; its output is
// the scalar norm2. The norm over all tensors is the square root of the sum. With ∇f from
// a full-precision forward pass it is the quantity of the theorem. With the gradient of
// the quantized forward pass, ∇f(Q(x)), it is a different one and must be named
// accordingly.
func ParetoNorm2(r Rule) (*program.Program, error) {
	b := program.NewBuilder("pareto/" + r.Name)
	t := program.FloatType(r.Shape...)
	g := b.Input(InputGradient, t)
	x := b.Input(InputX, t)
	q := b.Input(InputQuantized, t)
	lambda := b.Input(InputLambda, program.FloatType())
	b.Output(OutputNorm2, sumOfSquares(g.Add(x.Sub(r.restore(q)).Mul(lambda))))
	return b.Build()
}

// sumOfSquares is Σ v².
func sumOfSquares(v program.Value) program.Value { return sum(v.Square()) }

// sum adds up rows first: in float32 one running sum over millions of terms loses what is
// small beside it.
func sum(v program.Value) program.Value {
	if rank := v.Type().Rank(); rank > 1 {
		v = v.Sum(rank - 1)
	}
	return v.SumAll()
}
