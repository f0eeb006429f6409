package engine_test

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/racing"
)

// block returns a network layer with a residual connection, a value with a custom gradient, and a
// gain that it reads but that is not one of its inputs.
func block(gain *graph.Node) func(in []*graph.Node) *graph.Node {
	return func(in []*graph.Node) *graph.Node {
		x, w := in[0], in[1]
		h := graph.Tanh(graph.MatMul(x, w))
		h = straightThrough(graph.Round(graph.MulScalar(h, 8)), h,
			func(dy *graph.Node) *graph.Node { return graph.Mul(dy, h) })
		return graph.Add(x, graph.Mul(graph.Sigmoid(h), gain))
	}
}

// chain returns a step that applies a block for each weight, with or without checkpoints, and
// differentiates the sum of squares.
func chain(checkpointed bool, calls *int) engine.BuildFunc {
	return func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		x, gain := in[0], in[1]
		counted := func(in []*graph.Node) *graph.Node {
			*calls++
			return block(graph.Exp(gain))(in)
		}
		for _, w := range in[2:] {
			if checkpointed {
				x = engine.Checkpoint(counted, x, w)
			} else {
				x = counted([]*graph.Node{x, w})
			}
		}
		loss := graph.ReduceAllSum(graph.Square(x))
		return append(graph.Gradient(loss, in...), loss)
	}
}

func random(n int, factor float64) []float32 {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(factor * rng.NormFloat64())
	}
	return values
}

// TestCheckpointIsExact checks that checkpoints do not change a bit of a loss and its gradients,
// with respect to inputs of the blocks and the gain, and that each block is built exactly twice.
func TestCheckpointIsExact(t *testing.T) {
	const layers, rows, width = 24, 6, 8
	inputs, dims := [][]float32{random(rows*width, 1), random(width, 0.3)},
		[][]int{{rows, width}, {1, width}}
	for i := range layers {
		w := random(width*width+i, 0.3)
		inputs, dims = append(inputs, w[i:]), append(dims, []int{width, width})
	}
	var plain, checkpointed int
	want := evaluate(t, inputs, dims, chain(false, &plain))
	got := evaluate(t, inputs, dims, chain(true, &checkpointed))
	for i := range want {
		expect(t, "output", got[i], want[i])
		if !slices.ContainsFunc(got[i], func(v float32) bool { return v != 0 }) {
			t.Errorf("output %d is zero", i)
		}
	}
	if plain != layers || checkpointed != 2*layers {
		t.Errorf("the blocks were built %d and %d times, want %d and %d", plain, checkpointed, layers,
			2*layers)
	}
}

// TestCheckpointNegativeZero checks that the second computation uses the exact bits of the inputs.
func TestCheckpointNegativeZero(t *testing.T) {
	out := evaluate(t, [][]float32{{0, 2}, {3, 4}}, [][]int{{2}, {2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			x := graph.Neg(in[0])
			y := engine.Checkpoint(func(in []*graph.Node) *graph.Node { return graph.Mul(in[0], in[1]) }, x,
				in[1])
			return append(graph.Gradient(graph.ReduceAllSum(y), x, in[1]), y)
		})
	expect(t, "dx", out[0], []float32{3, 4})
	expect(t, "dw", out[1], []float32{negativeZero, -2})
	expect(t, "value", out[2], []float32{negativeZero, -8})
}

// TestCheckpointIsLazy checks that a block is built only once without differentiation.
func TestCheckpointIsLazy(t *testing.T) {
	calls := 0
	out := evaluate(t, [][]float32{{1, 2}}, [][]int{{2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{engine.Checkpoint(func(in []*graph.Node) *graph.Node {
				calls++
				return graph.Square(in[0])
			}, in...)}
		})
	expect(t, "value", out[0], []float32{1, 4})
	if calls != 1 {
		t.Errorf("built %d times, want once", calls)
	}
}

// TestMemoryOfCheckpoints checks that checkpoints at least halve the memory of a step, because the
// values of a block live only while it is computed.
func TestMemoryOfCheckpoints(t *testing.T) {
	if racing.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	const layers, rows, width = 16, 2048, 32
	calls := 0
	allocated := func(checkpointed bool) uint64 {
		d, err := engine.Open(device.CPU, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var specs []engine.Spec
		var buffers []*engine.Buffer
		for i := range layers + 2 {
			dims := []int{width, width}
			if i == 0 {
				dims[0] = rows
			} else if i == 1 {
				dims[0] = 1
			}
			b, err := engine.Upload(d, random(dims[0]*dims[1], 0.1), dims...)
			if err != nil {
				t.Fatal(err)
			}
			specs = append(specs,
				engine.Spec{Name: string(rune('a' + i)), Shape: shapes.Make(dtypes.Float32, dims...)})
			buffers = append(buffers, b)
		}
		e, err := d.Compile(t.Name(), specs, chain(checkpointed, &calls))
		if err != nil {
			t.Fatal(err)
		}
		// The device reuses freed buffers. Without garbage collection, it therefore allocates only the
		// memory that is in use at once.
		runtime.GC()
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := e.Run(buffers, nil)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if err := engine.FinalizeAll(out...); err != nil {
			t.Fatal(err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	plain, checkpointed := allocated(false), allocated(true)
	t.Logf("%d KiB, checkpointed %d KiB", plain>>10, checkpointed>>10)
	if checkpointed > plain/2 {
		t.Errorf("checkpointed blocks took %d KiB, others %d: want less than half", checkpointed>>10,
			plain>>10)
	}
}
