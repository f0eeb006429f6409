package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/testing/plugintest"
)

func TestMerge(t *testing.T) {
	for _, c := range []struct {
		shape []int
		most  int
		want  []int
	}{
		{[]int{2, 3}, 6, []int{6}},
		{[]int{2, 3}, 5, []int{2, 3}},
		{[]int{1, 7}, 4, []int{7}},
		{[]int{7, 1}, 4, []int{7}},
		{[]int{2, 3, 4}, 12, []int{6, 4}},
		{[]int{2, 5, 3, 1, 2}, 6, []int{2, 5, 6}},
		{[]int{1, 1}, 4, nil},
		{nil, 4, nil},
	} {
		if got := merge(c.shape, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%v up to %d: %v, want %v", c.shape, c.most, got, c.want)
		}
	}
}

// TestBlocks: each block moves as a tensor of its own does, whatever the grid: one
// axis cut, both, with and without a smaller block at the end.
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

// TestMergedIsVector: a matrix that is merged into one axis moves as a vector does,
// and unmerged it does not.
func TestMergedIsVector(t *testing.T) {
	const steps = 4
	given := map[string]any{"freq": 1, "eps": 1e-6, "max_precond_dim": 6}
	merged := map[string]any{"freq": 1, "eps": 1e-6, "max_precond_dim": 6, "merge_dims": true}
	start, gradients := plugintest.Normal(3, 6).Data, plugintest.Normal(4, steps, 6)
	m := plugintest.Reference()
	flat := m.Train(t, shampoo{}, given, plugintest.Vector(6), start).Steps(t, gradients, 0.1)
	plugintest.Near(t, "x", m.Train(t, shampoo{}, merged, plugintest.Matrix(2, 3), start).Steps(t, gradients, 0.1), flat, 1e-12)
	if apart := m.Train(t, shampoo{}, given, plugintest.Matrix(2, 3), start).Steps(t, gradients, 0.1); slices.Equal(apart, flat) {
		t.Error("without merge_dims the matrix is treated as a vector, too")
	}
}

// TestThreeAxes: no axis is special: a tensor with permuted axes moves as before.
func TestThreeAxes(t *testing.T) {
	const steps = 4
	given := map[string]any{"freq": 2, "max_precond_dim": 3, "eps": 1e-6}
	shape, order := []int{2, 4, 7}, []int{2, 0, 1}
	start, gradients := plugintest.Normal(5, shape...).Data, plugintest.Normal(6, steps, 2, 4, 7)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		run := m.Train(t, shampoo{}, given, plugintest.Matrix(shape...), start)
		turned := m.Train(t, shampoo{}, given, plugintest.Matrix(7, 2, 4), turn(start, shape, order))
		for s := range steps {
			run.Update(t, gradients.Row(s).Data, 0.1)
			turned.Update(t, turn(gradients.Row(s).Data, shape, order), 0.1)
		}
		plugintest.Near(t, "x", turned.X(), turn(run.X(), shape, order), roundings(m))
	})
}

// roundings is what two orders of summation may make of a few steps.
func roundings(m plugintest.Bench) float64 {
	if m.Double() {
		return 1e-12
	}
	return 1e-6
}

// turn puts axis order[i] of a tensor with three axes in place i.
func turn(data []float64, shape, order []int) []float64 {
	var out []float64
	index := make([]int, 3)
	for index[order[0]] = range shape[order[0]] {
		for index[order[1]] = range shape[order[1]] {
			for index[order[2]] = range shape[order[2]] {
				out = append(out, data[(index[0]*shape[1]+index[1])*shape[2]+index[2]])
			}
		}
	}
	return out
}
