package program_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// The program rounds to the nearest of 15 levels between plus and minus the largest magnitude of
// each row.
func ExampleBuilder() {
	b := program.NewBuilder("absmax")
	x := b.Input("x", program.FloatType(4, 64))
	scale := x.Abs().MaxRow().Scale(1. / 7)
	b.Output("value", x.Div(scale).Round().Mul(scale))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	// Output:
	// program absmax(%0 x: float[4,64]) {
	//   %1 = abs %0 : float[4,64]
	//   %2 = reduce_max %1 axes=[1] : float[4]
	//   %3 = reshape %2 : float[4,1]
	//   %4 = constant 0.14285714285714285 : float
	//   %5 = mul %3 %4 : float[4,1]
	//   %6 = div %0 %5 : float[4,64]
	//   %7 = round %6 : float[4,64]
	//   %8 = mul %7 %5 : float[4,64]
	//   return value=%8
	// }
}

func ExampleProgram_Validate() {
	p := &program.Program{
		Name:   "hostile",
		Inputs: []program.Input{{Name: "x", Type: program.FloatType(2, 3)}},
		Nodes: []program.Node{{Op: program.OpReshape, Args: []program.ID{0},
			Type: program.FloatType(1<<20, 1<<20)}},
		Outputs: []program.Output{{Name: "y", Value: 1}},
	}
	fmt.Println(p.Validate(program.Limits{}))
	// Output:
	// program "hostile": %1 = reshape: float[1048576,1048576] has more than 2147483647 elements
}

func ExampleOps() {
	info, _ := program.OpRound.Info()
	fmt.Println(info.Name+":", info.Meaning)
	// Output:
	// round: The nearest integer, ties to even; NaN and ±Inf stay. The sign of a zero result is not defined.
}
