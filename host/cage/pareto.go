package cage

import (
	"github.com/cage-qat/cage/sdk/program"
)

// ParetoNorm2 writes the squared length of one tensor's share of the stationarity
// measure (paper Eq. 2)
//
//	P_λ(x) = ∇f(x) + λ·(x − Q(x)),
//
// a program from gradient, x, quantized (as the rule has it) and lambda to the scalar
// norm2. The norm over all tensors is the square root of the sum. With ∇f from a full-precision
// forward it is the quantity of the theorem; with the gradient of the quantized
// forward, ∇f(Q(x)), it is a different one and must be named so.
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

// OutputNorm2 is the output of [ParetoNorm2].
const OutputNorm2 = "norm2"
