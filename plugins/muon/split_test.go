package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name       string
		rows, cols int
		split      string
		want       int
		err        string
	}{
		{"layers.0.attn.qkv", 12, 4, "auto", 3, ""},
		{"layers.0.attn.qkv", 8, 4, "auto", 1, ""}, // fewer keys than queries: not three equal parts
		{"layers.0.mlp.w1", 12, 4, "auto", 1, ""},
		{"layers.0.attn.qkv", 12, 4, "none", 1, ""},
		{"layers.0.mlp.w1", 12, 4, "4", 4, ""},
		{"layers.0.mlp.w1", 12, 4, "1", 1, ""},
		{"layers.0.mlp.w1", 12, 4, "5", 0, "12 rows do not make 5 equal blocks"},
		{"layers.0.mlp.w1", 12, 4, "0", 0, "use auto, none, or a number"},
		{"layers.0.mlp.w1", 12, 4, "heads", 0, "use auto, none, or a number"},
	} {
		tensor := named(c.name, c.rows, c.cols)
		tensor.Values = plugintest.Settings(t, muon{}.Describe(), map[string]any{"split": c.split})
		got, err := split(tensor)
		_, programs := sdk.BuildOptimizer(muon{}, tensor)
		if c.err != "" {
			plugintest.Refused(t, c.split, err, c.err)
			plugintest.Refused(t, c.split+": programs", programs, c.err)
			continue
		}
		if got != c.want || err != nil || programs != nil {
			t.Errorf("%s %dx%d, split = %q: %d, %v, %v", c.name, c.rows, c.cols, c.split, got, err, programs)
		}
	}
}

// named is a matrix with a name, on which the split depends.
func named(name string, shape ...int) sdk.Tensor {
	tensor := plugintest.Matrix(shape...)
	tensor.Name = name
	return tensor
}

// TestParts: a matrix in three parts moves as three matrices do.
func TestParts(t *testing.T) {
	const rows, cols, steps = 12, 4, 3
	const part = rows / 3 * cols
	start, gradients := plugintest.Normal(9, rows, cols).Data, plugintest.Normal(10, steps, rows, cols)
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		whole := m.Train(t, muon{}, nil, named("attn.qkv", rows, cols), start).Steps(t, gradients, 0.1)
		var want []float64
		for i := range 3 {
			run := m.Train(t, muon{}, nil, plugintest.Matrix(rows/3, cols), start[i*part:(i+1)*part])
			for s := range steps {
				run.Update(t, gradients.Row(s).Data[i*part:(i+1)*part], 0.1)
			}
			want = append(want, run.X()...)
		}
		plugintest.Near(t, "x", whole, want, 1e-6) // binary32 may sum in another order
	})
}

// TestAccepts: the matrices of hidden layers and nothing else.
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
		p := plugintest.BuildOptimizer(t, muon{}, nil, sdk.Tensor{Name: "w", Role: c.role, Shape: c.shape})
		if p.Accepts != c.want {
			t.Errorf("%s %v: accepted: %v", c.role, c.shape, p.Accepts)
		}
	}
}

// TestState: momentum is the only thing to remember, and only when there is some.
func TestState(t *testing.T) {
	for momentum, want := range map[float64]int{0: 0, 0.9: 1} {
		if p := plugintest.BuildOptimizer(t, muon{}, map[string]any{"momentum": momentum}, plugintest.Matrix(2, 3)); len(p.State) != want {
			t.Errorf("momentum %v: state %v, want %d tensors", momentum, p.State, want)
		}
	}
}
