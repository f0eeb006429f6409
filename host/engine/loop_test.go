package engine_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestLoop sums the rows of a matrix, with the same constants and reductions before, in and after the loop.
func TestLoop(t *testing.T) {
	d := open(t)
	specs := []engine.Spec{{Name: "x", Shape: f32(4, 3)}, {Name: "scale", Shape: f32()}}
	double := func(x *graph.Node) *graph.Node { return graph.MulScalar(graph.ReduceAllSum(x), 2) }
	e := compile(t, d, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		before := double(in[0])
		state := []*graph.Node{graph.ScalarZero(g, in[0].DType()), before}
		state = engine.Loop(g, 4, in, state, func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
			row := graph.Gather(fixed[0], graph.Reshape(i, 1))
			return []*graph.Node{graph.Add(state[0], graph.Mul(fixed[1], double(row))), graph.Neg(state[1])}
		})
		return append(state, double(state[0]), before)
	})
	x := testdevice.Upload(t, d, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3)
	out := run(t, e, x, testdevice.Upload(t, d, []float32{10}))
	for i, want := range []float32{1560, 156, 3120, 156} {
		if got := testdevice.Download[float32](t, out[i])[0]; got != want {
			t.Errorf("output %d is %v, want %v", i, got, want)
		}
	}
}
