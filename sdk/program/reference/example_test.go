package reference_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func ExampleRun() {
	b := program.NewBuilder("absmax")
	x := b.Input("x", program.FloatType(2, 4))
	scale := x.Abs().MaxRow().Scale(1. / 7)
	codes := x.Div(scale).Round()
	b.Output("value", codes.Mul(scale))
	b.Output("codes", codes.Convert(program.Int))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := reference.Run(p, map[string]reference.Tensor{
		"x": reference.Floats([]float64{0.5, -1, 2, 7, 1, 2, 4, -14}, 2, 4),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out["codes"])
	fmt.Println(out["value"])
	// Output:
	// int[2,4] [0 -1 2 7 0 1 2 -7]
	// float[2,4] [0 -1 2 7 0 2 4 -14]
}
