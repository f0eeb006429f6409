package main

import (
	"slices"
	"strings"
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
		tensor := matrix(c.name, c.rows, c.cols)
		tensor.Values = plugintest.Settings(t, muon{}.Describe(), map[string]any{"split": c.split})
		got, err := split(tensor)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %dx%d, split = %q: %d, %v", c.name, c.rows, c.cols, c.split, got, err)
		}
		if _, err := sdk.BuildOptimizer(muon{}, tensor); (err == nil) != (c.err == "") {
			t.Errorf("split = %q: programs: %v", c.split, err)
		}
	}
}

// TestParts: a matrix in three parts moves as three matrices do.
func TestParts(t *testing.T) {
	const rows, cols, steps = 12, 4, 3
	const part = rows / 3 * cols
	start, gradients := plugintest.Normal(9, rows, cols).Data, plugintest.Normal(10, steps, rows, cols)
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		whole := m.Train(t, muon{}, nil, matrix("attn.qkv", rows, cols), start)
		var parts []*plugintest.Training
		for i := range 3 {
			parts = append(parts, m.Train(t, muon{}, nil, matrix("w", rows/3, cols), start[i*part:(i+1)*part]))
		}
		for s := range steps {
			g := gradients.Row(s).Data
			whole.Update(t, g, 0.1)
			for i, p := range parts {
				p.Update(t, g[i*part:(i+1)*part], 0.1)
			}
		}
		want := slices.Concat(parts[0].X(), parts[1].X(), parts[2].X())
		plugintest.Near(t, "x", whole.X(), want, 1e-6) // binary32 may sum in another order
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
		p := build(t, nil, sdk.Tensor{Name: "w", Role: c.role, Shape: c.shape})
		if p.Accepts != c.want {
			t.Errorf("%s %v: accepted: %v", c.role, c.shape, p.Accepts)
		}
	}
}

// TestState: momentum is the only thing to remember, and only when there is some.
func TestState(t *testing.T) {
	for momentum, want := range map[float64]int{0: 0, 0.9: 1} {
		if p := build(t, map[string]any{"momentum": momentum}, matrix("w", 2, 3)); len(p.State) != want {
			t.Errorf("momentum %v: state %v, want %d tensors", momentum, p.State, want)
		}
	}
}
