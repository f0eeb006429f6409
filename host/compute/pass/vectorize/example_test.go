package vectorize_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/pass/vectorize"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Two steps of gradient descent at once, with one rate.
func ExampleProgram() {
	b := program.NewBuilder("descent")
	x, g := b.Input("x", program.FloatType(2)), b.Input("gradient", program.FloatType(2))
	rate := b.Input("rate", program.FloatType())
	b.Output("x", x.Sub(g.Mul(rate)))
	p, _ := b.Build()
	both, err := vectorize.Program(p, 2, "rate")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(both)
	out, _ := reference.Run(both, map[string]reference.Tensor{
		"x":        reference.Floats([]float64{1, 2, 3, 4}, 2, 2),
		"gradient": reference.Floats([]float64{1, 1, 2, 2}, 2, 2),
		"rate":     reference.Float(0.5),
	})
	fmt.Println(out["x"])
	// Output:
	// program descent(%0 x: float[2,2], %1 gradient: float[2,2], %2 rate: float) {
	//   %3 = mul %1 %2 : float[2,2]
	//   %4 = sub %0 %3 : float[2,2]
	//   return x=%4
	// }
	// float[2,2] [0.5 1.5 2 3]
}
