package matrix_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/matrix"
	"github.com/cage-qat/cage/sdk/program"
)

func Example() {
	b := program.NewBuilder("gram")
	x := b.Input("x", program.FloatType(2, 3))
	b.Output("y", x.Dot(x, [2][]int{{1}, {1}}, [2][]int{}).Scale(0.5))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	k, err := matrix.Compile(p)
	if err != nil {
		panic(err)
	}
	y := make([]float32, 4)
	call := matrix.Call{Kernel: k, Inputs: [][]float32{{1, 2, 3, 0, 1, 0}}, Outputs: [][]float32{y}}
	if err := matrix.NewRunner(0).Run([]matrix.Call{call}); err != nil {
		panic(err)
	}
	fmt.Println(y)
	// Output: [7 1 1 0.5]
}
