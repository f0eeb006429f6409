package graphs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// TestNormAdjoints checks that the kernel of the adjoints of a norm computes the same as the graph,
// with and without the adjoint of the residual stream, and that the rounded adjoint is the operand
// of products.
func TestNormAdjoints(t *testing.T) {
	const rows, width = 64, 96
	rng := rand.New(rand.NewPCG(3, 7))
	draw := func(name string, dims ...int) engine.Input {
		s := shapes.Make(shapes.Float32, dims...)
		data := make([]float32, s.Size())
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		return engine.Input{Spec: engine.Spec{Name: name, Shape: s}, Data: data}
	}
	inputs := []engine.Input{draw("x", rows, width), draw("gain", 1, width), draw("scale", rows, 1),
		draw("dy", rows, width), draw("sum", rows, width)}
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
	for _, joins := range []bool{false, true} {
		t.Run(fmt.Sprint(joins), func(t *testing.T) {
			got, err := d.Evaluate("adjoints", inputs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
				x, gain, scale, dy, sum := in[0], in[1], in[2], in[3], in[4]
				normalized := graph.Mul(x, scale)
				product := graph.Mul(dy, normalized)
				projection := graph.ReduceAndKeep(graph.Mul(product, gain), graph.ReduceMean, -1)
				want := graph.Mul(graph.Sub(graph.Mul(dy, gain), graph.Mul(normalized, projection)), scale)
				if joins {
					want = graph.Add(want, sum)
				} else {
					sum = nil
				}
				dx, dGain, ok := kernelAdjoints(x, gain, scale, dy, sum)
				if !ok {
					t.Fatal("there is no kernel")
				}
				return []*graph.Node{dx, want, dGain, graph.ReduceSum(product, 0), engine.Rounded(dx),
					engine.Rounded(graph.ConvertDType(engine.Operand(dx), shapes.Float32))}
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(got); i += 2 {
				for j, want := range got[i+1] {
					if diff := math.Abs(float64(got[i][j] - want)); !(diff <= 1e-5) {
						t.Fatalf("number %d of result %d is %v, want %v", j, i/2, got[i][j], want)
					}
				}
			}
		})
	}
}
