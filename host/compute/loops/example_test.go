package loops_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/loops"
)

// Two predictions of three classes. The second is uniform.
func ExampleLogits() {
	l := loops.Logits{Columns: 3, Logits: []float32{4, 0, 0, 1, 1, 1}, Targets: []int32{0, 2}}
	losses, gradients := make([]float32, 2), make([]float32, 6)
	if err := l.Losses(losses, gradients, nil, []float32{1, 1}, loops.InOrder); err != nil {
		panic(err)
	}
	fmt.Printf("%.3f\n%.3f\n", losses, gradients)
	// Output:
	// [0.036 1.099]
	// [-0.035 0.018 0.018 0.333 0.333 -0.667]
}
