package posttrain_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
)

// The inputs of two weights are correlated: if the first weight is rounded up, the second can be
// rounded down.
func ExampleGPTQ() {
	grid := &posttrain.Grid{Levels: cage.NewLevels(map[int32]float32{0: 0, 1: 1, 2: 2}), Rows: 1,
		Columns: 2, Group: 2, Scales: []float64{1}}
	h := &posttrain.Hessian{Size: 2, Data: []float64{1, 0.9, 0.9, 1}}
	w := []float64{0.6, 0.6}
	_, err := posttrain.Round(context.Background(), w, h, grid, posttrain.Settings{Damping: 0.01}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w)
	// Output:
	// [1 0]
}
