package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

// TestTransposed compares with a transposition in Go, for shapes on both sides of each of transposeBlock's limits.
func TestTransposed(t *testing.T) {
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, tc := range []struct{ rows, columns, block int }{
		{1, 1, 0}, {3, 5, 0}, {5, 3, 0}, {40, 8, 0}, {40, 16, 16}, {31, 16, 0}, {100, 48, 16}, {96, 24, 0},
		{256, 64, 64}, {1024, 128, 64}, {64, 1024, 0}, {400, 192, 64}, {300, 160, 0}, {320, 160, 32},
	} {
		if got := transposeBlock(tc.rows, tc.columns); got != tc.block {
			t.Errorf("%d by %d: blocks of %d, want %d", tc.rows, tc.columns, got, tc.block)
		}
		values := make([]float32, tc.rows*tc.columns)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		x, err := engine.Upload(d, values, tc.rows, tc.columns)
		if err != nil {
			t.Fatal(err)
		}
		step, err := d.Compile(fmt.Sprint(tc), []engine.Spec{{Name: "x", Shape: x.Shape()}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{transposed(in[0])}
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := step.Run([]*engine.Buffer{x}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := engine.Download[float32](out[0])
		if err != nil {
			t.Fatal(err)
		}
		for i, value := range got {
			if row, column := i%tc.rows, i/tc.rows; value != values[row*tc.columns+column] {
				t.Fatalf("%d by %d: element %d, %d of the transpose is %v", tc.rows, tc.columns, column, row, value)
			}
		}
	}
}
