package matmul_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/compute/matmul"
)

// This example multiplies the rows of x by those of w. Neither is transposed in memory: the layouts
// specify which axis is summed over.
func Example() {
	x := []float32{
		1, 2, 3,
		4, 5, 6,
	}
	w := []float32{
		1, 0, 1,
		0, 2, 0,
		1, 1, 1,
		0, 0, -1,
	}
	tier, err := matmul.Best()
	if err != nil {
		log.Fatal(err)
	}
	rows := func(n, k int) matmul.Layout {
		return matmul.Layout{Cross: []matmul.Axis{{Size: n, Stride: k}},
			Contracted: []matmul.Axis{{Size: k, Stride: 1}}}
	}
	p, err := matmul.New(tier, matmul.BFloat16, rows(2, 3), rows(4, 3))
	if err != nil {
		log.Fatal(err)
	}
	out := make([]float32, p.Size())
	if err := p.Run(matmul.Results{Float32: out}, matmul.Elements{Float32: x},
		matmul.Elements{Float32: w}, matmul.Scales{}, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out[:4])
	fmt.Println(out[4:])
	// Output:
	// [4 4 6 -3]
	// [10 10 15 -6]
}
