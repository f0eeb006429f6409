package cage

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/sdk/program/reference"
)

// A grid of step 1 for weights up to 8. Half way between two of its points the
// variance of randomized rounding is largest and the regularizer is flat; next to it
// it pulls the weight to the nearer point.
func ExampleLotion() {
	p, err := lotionProgram(DefaultLotion, 4)
	if err != nil {
		log.Fatal(err)
	}
	out, err := reference.Run(p, map[string]reference.Tensor{
		"x":        reference.Floats([]float64{8, 2.25, 2.5, 2.75}, 4),
		"gradient": reference.Floats([]float64{0, 0, 0, 0}, 4),
		"fisher":   reference.Floats([]float64{0, 1e-3, 1e-3, 1e-3}, 4),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("gradient:", out["gradient"].Float64s())
	fmt.Printf("regularizer: %.3f, variance: %.3f\n", out["regularizer"].Scalar(), out["variance"].Scalar())
	// Output:
	// gradient: [0 1 0 -1]
	// regularizer: 1.250, variance: 0.625
}
