package tile_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/update/tile"
	"github.com/cage-qat/cage/sdk/program"
)

// A step of momentum in the place of its inputs.
func Example() {
	b := program.NewBuilder("momentum")
	x, m := b.Input("x", program.FloatType(4)), b.Input("m", program.FloatType(4))
	g, rate := b.Input("g", program.FloatType(4)), b.Input("rate", program.FloatType())
	m = m.Scale(0.5).Add(g)
	b.Output("x", x.Sub(m.Mul(rate)))
	b.Output("m", m)
	b.Output("norm", m.Square().SumAll().Sqrt())
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	k, err := tile.Compile(p)
	if err != nil { // such programs are for a graph
		fmt.Println(err)
		return
	}

	r := tile.NewRunner(0)
	weights, momentum, norm := []float32{1, 2, 3, 4}, []float32{0, 0, 4, 8}, []float32{0}
	err = r.Run([]tile.Call{{
		Kernel:  k,
		Inputs:  [][]float32{weights, momentum, {2, 2, 0, 0}, {0.5}},
		Outputs: [][]float32{weights, momentum, norm},
	}})
	fmt.Println(weights, momentum, norm, err)
	// Output:
	// [0 1 2 2] [2 2 2 4] [5.2915025] <nil>
}

func ExampleCompile() {
	b := program.NewBuilder("softmax")
	e := b.Input("x", program.FloatType(8)).Exp()
	b.Output("y", e.Div(e.SumAll()))
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = tile.Compile(p)
	fmt.Println(err)
	// Output:
	// program "softmax" does not run in tiles yet: %1 = exp: tiles do not have this operation
}
