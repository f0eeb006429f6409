package network

import (
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// Quadratic returns the program of f(x) − f(x*) = ½(x−x*)ᵀA(x−x*), summed over the rows of x, for a
// symmetric matrix A. [Tokens] are the bits of noise, float[rows, dimension], that is added to the
// gradient A(x − x*).
func Quadratic(param architecture.Param, matrix, optimum []float64) (*program.Program, error) {
	b, dims := program.NewSimplifier("quadratic"), param.Dims
	batch := b.Input(Tokens, program.Type{DType: program.Int, Shape: dims})
	x, noise := b.Input(param.Name, program.FloatType(dims...)), batch.Bitcast(program.Float)
	meaning, _, err := written("quadratic", []string{"x", "noise"},
		func(in []value) ([]string, []value) {
			b := in[0].Builder()
			away := in[0].Sub(b.Table(optimum, dims...))
			gradient := linear(away, b.Table(matrix, dims[1], dims[1]))
			f := away.Mul(gradient).SumAll().Scale(0.5)
			return []string{"f", "gradient"}, []value{f.Reshape(1), gradient}
		}, x, noise)
	if err != nil {
		return nil, err
	}
	back := program.NewSimplifier("quadratic.adjoint")
	gradient, shift := back.Input("gradient", x.Type()), back.Input("noise", x.Type())
	df := back.Input("d.f", program.FloatType(1))
	back.Output("d.x", gradient.Add(shift).Mul(df.Reshape(1, 1)))
	adjoint, err := back.Build()
	if err != nil {
		return nil, err
	}
	c := &program.Call{Name: "quadratic", Meaning: meaning, Adjoint: adjoint}
	b.Output(Losses, b.Call(c, x, noise)[0])
	return b.Build()
}
