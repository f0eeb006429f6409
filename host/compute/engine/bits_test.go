package engine_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestSameBits runs a step with products, reductions and reuse of buffers again and again, with different numbers of
// threads and from several goroutines at once.
func TestSameBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]float32, 96*160)
	for i := range data {
		data[i] = float32(rng.NormFloat64())
	}
	var want []float32
	for _, threads := range []int{0, 1, 2, 3} {
		d, err := engine.Open(device.CPU, engine.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		x := testdevice.Upload(t, d, data, 96, 160)
		e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(96, 160)}}, manyBranches(6))
		var group sync.WaitGroup
		results := make([][]float32, 6)
		for i := range results {
			group.Go(func() {
				out, err := e.Run([]*engine.Buffer{x}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				results[i], err = engine.Download[float32](out[0])
				if err != nil {
					t.Error(err)
				}
			})
			if i < 3 {
				group.Wait() // The first runs are alone, the others overlap.
			}
		}
		group.Wait()
		if want == nil {
			want = results[0]
		}
		for _, got := range results {
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("threads %d: element %d is %v, was %v", threads, i, got[i], want[i])
				}
			}
		}
	}
}

// manyBranches builds a step whose graph has n chains of products and reductions that can run in parallel.
func manyBranches(n int) engine.BuildFunc {
	return func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		total := graph.ZerosLike(in[0])
		for i := range n {
			x := graph.MulScalar(in[0], 1/float64(1+i))
			for range 3 {
				gram := graph.DotGeneral(x, []int{0}, nil, in[0], []int{0}, nil)
				scale := graph.Sqrt(graph.AddScalar(graph.ReduceAllMean(graph.Square(gram)), 1e-6))
				x = graph.Tanh(graph.MatMul(x, graph.Div(gram, scale)))
				x = graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, -1))
			}
			total = graph.Add(total, x)
		}
		return []*graph.Node{total}
	}
}
