package bench

import (
	"math"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
)

// peakFLOPS measures the speed of a product of two large float32 matrices, the best
// of a few.
func peakFLOPS(dev *engine.Device) (float64, error) {
	const n, tries = 1536, 6
	shape := shapes.Make(dtypes.Float32, n, n)
	product, err := dev.Compile("peak", []engine.Spec{{Name: "a", Shape: shape}, {Name: "b", Shape: shape}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(graph.DotGeneral(in[0], []int{1}, nil, in[1], []int{0}, nil))}
	})
	if err != nil {
		return 0, err
	}
	defer product.Close()
	ones := make([]float32, n*n)
	for i := range ones {
		ones[i] = 1
	}
	var in [2]*engine.Buffer
	for i := range in {
		if in[i], err = engine.Upload(dev, ones, n, n); err != nil {
			return 0, err
		}
		defer in[i].Finalize()
	}
	best := math.Inf(1)
	for range tries {
		began := time.Now()
		out, err := product.Run(in[:], nil)
		if err != nil {
			return 0, err
		}
		_, err = engine.Scalar[float32](out[0]) // waits for the device
		engine.FinalizeAll(out...)
		if err != nil {
			return 0, err
		}
		best = min(best, time.Since(began).Seconds())
	}
	return 2 * n * n * n / best, nil
}
