package triton_test

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
)

// A quantizer to integers from −7 to 7. Each instance of its kernel computes one row.
func ExampleNew() {
	b := program.NewBuilder("seven/weight.forward")
	x := b.Input("x", program.FloatType(256, 1024))
	scale := x.Abs().MaxRow().Div(b.Const(7))
	b.Output("value", x.Div(scale).Round().Mul(scale))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	k, err := triton.New(p, 256, triton.LargestRow,
		map[string]passes.Storage{"x": passes.BFloat16, "value": passes.BFloat16})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(k.Name, k.Grid, k.Warps)
	for _, line := range strings.Split(k.Text, "\n") {
		if strings.Contains(line, "precise_divf") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// cage_seven_forward 256 1
	// %v16 = tt.precise_divf %v14, %v15 : f32
	// %v19 = tt.precise_divf %v18, %v16 : f32
}
