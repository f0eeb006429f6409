package microscaling_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Blocks of 4 become four-bit floats; the maximum of a block becomes the largest level.
func Example() {
	b := program.NewBuilder("fp4")
	x := b.Input("x", program.FloatType(6))
	blocks := microscaling.NewBlocks(x.Shape(), 4)
	v := blocks.Split(x)
	scale := v.Abs().MaxRow().Scale(1. / microscaling.LargestE2M1)
	rounded := microscaling.RoundE2M1(v.Div(scale), microscaling.TiesEven)
	b.Output("value", blocks.Join(rounded.Mul(scale)))
	b.Output("codes", blocks.Join(microscaling.EncodeE2M1(rounded, v)))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := reference.Run(p,
		map[string]reference.Tensor{"x": reference.Floats([]float64{6, -2.9, 0.3, 1.1, 12, -1.2}, 6)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out["value"].Floats)
	fmt.Println(out["codes"].Ints)
	// Output:
	// [6 -3 0.5 1 12 -1]
	// [7 13 1 2 7 9]
}
