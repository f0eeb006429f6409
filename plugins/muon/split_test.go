package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
)

// fused returns a weight that stacks matrices with the given numbers of rows.
func fused(cols int, rows ...int) sdk.Tensor {
	tensor := sdk.Tensor{Name: "attn.qkv", Role: sdk.TensorMatrix, Shape: []int{0, cols}}
	for i, n := range rows {
		tensor.Parts = append(tensor.Parts, sdk.Part{Name: "qkvxyz"[i : i+1], First: tensor.Shape[0],
			Rows: n})
		tensor.Shape[0] += n
	}
	return tensor
}

// TestParts checks that the parts of a weight move like separate matrices.
func TestParts(t *testing.T) {
	const cols, steps = 4, 3
	for _, rows := range [][]int{{4, 4, 4}, {8, 2, 2}, {4, 8, 1, 1, 4}} {
		tensor := fused(cols, rows...)
		start, gradients := plugintest.Normal(9, tensor.Shape...).Data,
			plugintest.Normal(10, steps, tensor.Shape[0], cols)
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			whole := m.Train(t, muon{}, nil, tensor, start).Steps(t, gradients, 0.1)
			var want []float64
			for _, p := range tensor.Parts {
				first, end := p.First*cols, (p.First+p.Rows)*cols
				run := m.Train(t, muon{}, nil, plugintest.Matrix(p.Rows, cols), start[first:end])
				for s := range steps {
					run.Update(t, gradients.Row(s).Data[first:end], 0.1)
				}
				want = append(want, run.X()...)
			}
			plugintest.Near(t, "x", whole, want, 1e-6) // binary32 may sum in another order
		})
	}
}

// TestAccepts checks that only the matrices of hidden layers are accepted.
func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		role  sdk.TensorRole
		shape []int
		want  bool
	}{
		{sdk.TensorMatrix, []int{3, 4}, true},
		{sdk.TensorMatrix, []int{12}, false},
		{sdk.TensorVector, []int{4}, false},
		{sdk.TensorEmbedding, []int{8, 4}, false},
		{sdk.TensorHead, []int{8, 4}, false},
	} {
		p := plugintest.BuildOptimizer(t, muon{}, nil,
			sdk.Tensor{Name: "w", Role: c.role, Shape: c.shape})
		if p.Accepts != c.want {
			t.Errorf("%s %v: accepted: %v", c.role, c.shape, p.Accepts)
		}
	}
}

// TestState checks that the only state is the momentum, if there is any.
func TestState(t *testing.T) {
	for momentum, want := range map[float64]int{0: 0, 0.9: 1} {
		if p := plugintest.BuildOptimizer(t, muon{}, map[string]any{"momentum": momentum},
			plugintest.Matrix(2, 3)); len(p.State) != want {
			t.Errorf("momentum %v: state %v, want %d tensors", momentum, p.State, want)
		}
	}
}
