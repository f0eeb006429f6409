package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// TestShards compares Gather, Rows and ScatterSum with whole tensors, for several numbers of
// replicas.
func TestShards(t *testing.T) {
	for _, count := range []int{1, 2, 4} {
		d := testdevice.Open(t, engine.Options{Count: count})
		x, y := make([]float32, 24), make([]float32, 24)
		for i := range x {
			x[i], y[i] = float32(i), float32(100-i*i)
		}
		specs := []engine.Spec{{Name: "x", Shape: f32(8/count, 3), Sharded: true, Donated: true},
			{Name: "y", Shape: f32(8, 3)}}
		e := compile(t, d, specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			whole := engine.Gather(in[0])
			if engine.HasRows(whole) != (count > 1) || engine.HasRows(in[1]) {
				t.Errorf("%d replicas: the rows are known of the whole: %t; of the other: %t", count,
					engine.HasRows(whole), engine.HasRows(in[1]))
			}
			sum := engine.Elementwise(func(in []*graph.Node) *graph.Node { return graph.Add(in[0], in[1]) },
				whole, in[1])
			halves := graph.ConvertDType(whole, shapes.BFloat16)
			return []*graph.Node{
				engine.Sharded(engine.Rows(sum)),
				graph.Neg(whole), // read as a whole
				graph.ReduceSum(engine.ScatterSum(graph.Mul(in[1], graph.OnesLike(in[1])))),
				engine.Sharded(engine.Rows(engine.ScatterSum(in[1]))),
				graph.ConvertDType(engine.Gather(engine.Rows(halves)), shapes.Float32),
				engine.Sharded(engine.Rows(in[1])),
			}
		})
		a, err := engine.UploadSharded(d, x, true, 8, 3)
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.Run([]*engine.Buffer{a, testdevice.Upload(t, d, y, 8, 3)}, []bool{true, false})
		if err != nil {
			t.Fatal(err)
		}
		if !a.Gone() {
			t.Error("a donated buffer is not gone")
		}
		n := float32(count)
		each := func(f func(i int) float32) []float32 {
			list := make([]float32, 24)
			for i := range list {
				list[i] = f(i)
			}
			return list
		}
		var total float32
		for _, v := range y {
			total += n * v
		}
		for i, want := range [][]float32{
			each(func(i int) float32 { return x[i] + y[i] }), each(func(i int) float32 { return -x[i] }),
			{total},
			each(func(i int) float32 { return n * y[i] }), x, y,
		} {
			if got := testdevice.Download[float32](t, out[i]); !slices.Equal(got, want) {
				t.Errorf("%d replicas: output %d is %v, want %v", count, i, got, want)
			}
			if !out[i].Shape().Equal(e.Outputs()[i]) {
				t.Errorf("%d replicas: output %d has shape %s, and %s was announced", count, i, out[i].Shape(),
					e.Outputs()[i])
			}
		}
		sharded := []int64{96 / int64(count), 96, 4, 96 / int64(count), 96, 96 / int64(count)}
		for i, want := range sharded {
			if got := out[i].PartBytes(); got != want {
				t.Errorf("%d replicas: output %d takes %d bytes of each, want %d", count, i, got, want)
			}
		}
	}
}

// TestShardsInLoops gathers and sums inside a loop.
func TestShardsInLoops(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Count: 2})
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(1, 2), Sharded: true}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			zero := graph.ZerosLike(in[0])
			sum := engine.Loop(g, 3, []*graph.Node{in[0]}, []*graph.Node{zero},
				func(_ *graph.Node, fixed, state []*graph.Node) []*graph.Node {
					whole := engine.Gather(fixed[0])
					return []*graph.Node{graph.Add(state[0], engine.Rows(engine.ScatterSum(graph.Square(whole))))}
				})
			return []*graph.Node{engine.Sharded(sum[0])}
		})
	x, err := engine.UploadSharded(d, []float32{1, 2, 3, 4}, true, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := testdevice.Download[float32](t, run(t, e, x)[0]), []float32{6, 24, 54,
		96}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err = d.Compile("rows in a loop", []engine.Spec{{Name: "x", Shape: f32(2, 2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return engine.Loop(g, 3, in, []*graph.Node{graph.Slice(in[0], graph.AxisRange(0, 1))},
				func(_ *graph.Node, fixed, _ []*graph.Node) []*graph.Node {
					return []*graph.Node{engine.Rows(fixed[0])}
				})
		})
	if err == nil || !strings.Contains(err.Error(), "a loop body cannot slice") {
		t.Errorf("rows of a whole tensor in a loop: error %v", err)
	}
}

func TestRowsThatDoNotDivide(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Count: 2})
	_, err := d.Compile("three rows", []engine.Spec{{Name: "x", Shape: f32(3, 2)}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{engine.Rows(in[0])}
		})
	if err == nil || !strings.Contains(err.Error(), "not a multiple of 2 replicas") {
		t.Errorf("got error %v", err)
	}
}
