package main

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
)

// TestBlocks checks that each block moves like a separate tensor, for grids with one or both axes
// divided, with and without a smaller block at the end.
func TestBlocks(t *testing.T) {
	given := map[string]any{"max_precond_dim": 3, "freq": 2, "eps": 1e-6}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, shape := range [][2]int{{6, 2}, {2, 6}, {6, 9}, {7, 2}, {2, 7}, {7, 8}, {4, 6}} {
			t.Run(fmt.Sprint(shape), func(t *testing.T) { checkBlocks(t, m, given, shape, 3) })
		}
	})
}

func checkBlocks(t *testing.T, m plugintest.Bench, given map[string]any, shape [2]int, most int) {
	const steps = 5
	rows, cols := shape[0], shape[1]
	start, gradients := plugintest.Normal(1, rows, cols).Data, plugintest.Normal(2, steps, rows, cols)
	whole := m.Train(t, shampoo{}, given, plugintest.Matrix(rows, cols), start)
	want := make([]float64, rows*cols)
	for r := 0; r < rows; r += most {
		for c := 0; c < cols; c += most {
			h, w := min(most, rows-r), min(most, cols-c)
			part := func(data []float64) (out []float64) {
				for i := range h {
					out = append(out, data[(r+i)*cols+c:][:w]...)
				}
				return out
			}
			block := m.Train(t, shampoo{}, given, plugintest.Matrix(h, w), part(start))
			for s := range steps {
				block.Update(t, part(gradients.Row(s).Data), 0.1)
			}
			for i := range h {
				copy(want[(r+i)*cols+c:][:w], block.X()[i*w:])
			}
		}
	}
	plugintest.Near(t, "x", whole.Steps(t, gradients, 0.1), want, roundings(m))
}

// roundings bounds the effect of another order of summation over a few steps.
func roundings(m plugintest.Bench) float64 {
	if m.Double() {
		return 1e-12
	}
	return 1e-6
}
