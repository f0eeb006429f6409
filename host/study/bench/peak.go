package bench

import (
	"math"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

// peakFLOPS measures the speed of a product of two large matrices in the device's
// precision, the best of a few. A GPU needs larger ones before their product takes
// longer than its start.
func peakFLOPS(dev *engine.Device) (float64, error) {
	const tries = 6
	n := 1536
	if dev.Kind() != device.CPU {
		n = 8192
	}
	shape := shapes.Make(dtypes.Float32, n, n)
	product, err := dev.Compile("peak", []engine.Spec{{Name: "a", Shape: shape}, {Name: "b", Shape: shape}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(engine.DotGeneral(in[0], []int{1}, nil, in[1], []int{0}, nil))}
	})
	if err != nil {
		return 0, err
	}
	defer product.Close()
	// Not all alike: a GPU is faster on numbers whose bits do not change.
	values := make([]float32, n*n)
	for i := range values {
		values[i] = float32(uint32(i)*2654435761)/(1<<31) - 1
	}
	var in [2]*engine.Buffer
	for i := range in {
		if in[i], err = engine.Upload(dev, values, n, n); err != nil {
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
	return 2 * math.Pow(float64(n), 3) / best, nil
}
