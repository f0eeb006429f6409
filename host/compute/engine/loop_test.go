package engine_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
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

// TestNestedLoops: a loop in the body of another, as where micro-batches are computed one after the other and each in
// chunks, with the same constants and reductions in both, and a sort in the inner one.
func TestNestedLoops(t *testing.T) {
	d := open(t)
	total := func(x *graph.Node) *graph.Node { return graph.AddScalar(graph.ReduceAllSum(x), 1) }
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2, 3, 2)}}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		zero := []*graph.Node{graph.ScalarZero(g, in[0].DType())}
		outer := engine.Loop(g, 2, in, zero, func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
			matrix := graph.Reshape(graph.Gather(fixed[0], graph.Reshape(i, 1)), 3, 2)
			inner := engine.Loop(g, 3, []*graph.Node{matrix}, []*graph.Node{graph.ZerosLike(state[0])}, func(j *graph.Node, fixed, state []*graph.Node) []*graph.Node {
				row := graph.Sort(graph.Reshape(graph.Gather(fixed[0], graph.Reshape(j, 1)), 2), -1, true)
				return []*graph.Node{graph.Add(state[0], graph.MulScalar(total(row), 2))}
			})
			return []*graph.Node{graph.Add(state[0], graph.Add(inner[0], total(matrix)))}
		})
		return []*graph.Node{outer[0], total(in[0])}
	})
	out := run(t, e, testdevice.Upload(t, d, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 3, 2))
	for i, want := range []float32{3*78 + 6*2 + 2, 79} {
		if got := testdevice.Download[float32](t, out[i])[0]; got != want {
			t.Errorf("output %d is %v, want %v", i, got, want)
		}
	}
}
