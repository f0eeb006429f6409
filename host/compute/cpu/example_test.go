package cpu_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/sdk/program"
)

// This example quantizes rows to integers from −7 to 7 times a scale, and finds positive elements.
func Example() {
	b := program.NewBuilder("whole")
	x := b.Input("x", program.FloatType(2, 4))
	scale := x.Abs().MaxRow().Scale(1.0 / 7)
	b.Output("value", x.Div(scale).Round().Mul(scale))
	b.Output("positive", x.Gt(b.Const(0)))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	k, err := cpu.Compile(p, 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	value, positive := make([]float32, 8), make([]bool, 8)
	err = k.Run([]any{[]float32{7, -3.4, 0.2, 1, 1.75, 1, 0.1, -0.2}}, []any{value, positive},
		func(n int, f func(i int)) {
			for i := range n {
				f(i)
			}
		})
	fmt.Println(value, positive, err)
	// Output: [7 -3 0 1 1.75 1 0 -0.25] [true false true true true true true false] <nil>
}
