package lower

import (
	"errors"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// A node that does not give the stated type, or whose lowering panics, is named.
func TestNodeErrors(t *testing.T) {
	cpu, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 4)}}
	for _, n := range []program.Node{
		{Op: program.OpAbs, Args: []program.ID{0}, Type: program.FloatType(5)},
		{Op: program.OpReshape, Args: []program.ID{0}, Type: program.FloatType(3)},
		{Op: program.OpQR, Args: []program.ID{0}, Type: program.FloatType(4)},
	} {
		_, err := cpu.Compile("node", inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			p := &program.Program{Name: "bad", Inputs: []program.Input{{Name: "x", Type: program.FloatType(4)}}, Nodes: []program.Node{n}}
			l := &lowering{g: g, p: p, float: single, ranges: ranges(p)}
			return []*graph.Node{l.node(1, &n, in)}
		})
		var failed *NodeError
		if !errors.As(err, &failed) || failed.Program != "bad" || failed.Node != "%1 = "+n.Op.String() || errors.Unwrap(failed) == nil {
			t.Errorf("%s: got %v, want a NodeError", n.Op, err)
		}
	}
}

func TestRanges(t *testing.T) {
	b := program.NewBuilder("ranges")
	x, c := b.Input("x", program.FloatType(4)), b.Input("c", program.Type{DType: program.Bool, Shape: []int{4}})
	inf := math.Inf(1)
	cases := []struct {
		name  string
		value program.Value
		want  bounds
	}{
		{"clip", x.Clip(-8, 7), bounds{-8, 7, true}},
		{"clip_small", b.Iota(program.FloatType(4), 0).Clip(-8, 2), bounds{0, 2, false}},
		{"clip_tiny", x.Sign().Clip(-8, 7), bounds{-8, 7, true}},
		{"neg", x.Clip(-8, 7).Round().Neg(), bounds{-7, 8, true}},
		{"abs", x.Clip(-8, 7).Abs(), bounds{0, 8, true}},
		{"abs_far", x.Clip(2, 7).Neg().Abs(), bounds{2, 7, true}},
		{"sign", x.Sign(), bounds{-1, 1, true}},
		{"bool", c.Convert(program.Float), bounds{0, 1, false}},
		{"select", c.Select(x.Clip(0, 1), b.Const(5)), bounds{0, 5, true}},
		{"floor", x.Clip(-1.5, 2.5).Floor().Reshape(2, 2).MaxRow(), bounds{-2, 2, true}},
		{"add", x.Clip(0, 9).Add(x), unknown},
		{"iota", b.Iota(program.Type{DType: program.Int, Shape: []int{3}}, 0).Convert(program.Float), bounds{0, 2, false}},
		{"concatenate", x.Max(b.Const(1)).Concatenate(0, x.Clip(-3, 4)), bounds{-3, inf, true}},
		{"nan", b.Const(math.NaN()), unknown},
		{"int", x.Clip(0, 1).Convert(program.Int), unknown},
	}
	for _, c := range cases {
		b.Output(c.name, c.value)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	got := ranges(p)
	for i, c := range cases {
		if s := got[p.Outputs[i].Value]; s != c.want {
			t.Errorf("%s: %v, want %v", c.name, s, c.want)
		}
	}
}
