package passes_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// A quantizer to integers in a rotated domain.
func ExampleUndoRotation() {
	b := program.NewBuilder("rounding")
	x := b.Input("x", program.FloatType(2, 8))
	b.Output("value", x.Hadamard(4).Round().Hadamard(4))
	p, _ := b.Build()
	block := passes.EndingRotation(p, "value")
	half, err := passes.UndoRotation(p, block, "value")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("block", block)
	fmt.Print(half)
	// Output:
	// block 4
	// program rounding(%0 x: float[2,8]) {
	//   %1 = hadamard %0 block=4 : float[2,8]
	//   %2 = round %1 : float[2,8]
	//   return value=%2
	// }
}
