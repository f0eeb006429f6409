package lower

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/factor"
)

// multipliesBlocks reports whether a device multiplies codes in [blocks], by a kernel.
func multipliesBlocks(d *engine.Device) bool {
	return d.Try(blockTrial{}, "quantized matrices are multiplied by their values and not by their codes, which takes more time", func(d *engine.Device) error {
		switch {
		case !hasKernels(d):
			return errors.New("the device has no kernels")
		case d.Kernels() == device.AutoKernels:
			return blockTrial{}.run(d)
		}
		return nil
	}) == nil
}

// A blockTrial finds out, once on each device, whether the device multiplies blocks correctly. Its tiles are the largest that kernels
// use, so that it also shows whether the device has the memory for them.
type blockTrial struct{}

// Sizes of the two matrices. The axis over which they are summed is three tiles long.
const trialTokens, trialOutputs, trialInner = 128, 256, 768

func (t blockTrial) run(d *engine.Device) error {
	for _, size := range []int{factor.BlockE8M0, factor.BlockE4M3} {
		if err := t.multiply(d, size); err != nil {
			return fmt.Errorf("in blocks of %d: %w", size, err)
		}
	}
	return nil
}

// multiply compares the kernel with the graph on random codes and on scales about 1.
func (t blockTrial) multiply(d *engine.Device, size int) error {
	rng := rand.New(rand.NewPCG(3, 4))
	bytes := func(rows, length, least, most int) engine.Input {
		data := make([]float32, rows*length)
		for i := range data {
			data[i] = float32(int8(least + rng.IntN(most+1-least)))
		}
		return engine.Input{Spec: engine.Spec{Name: fmt.Sprintf("bytes_%d_%d", rows, length), Shape: shapes.Make(dtypes.Float32, rows, length)}, Data: data}
	}
	least, most := 124, 130 // 2⁻³ to 2³
	if size == factor.BlockE4M3 {
		least, most = 40, 72 // ¼ to 4
	}
	matrix := func(rows int) []engine.Input {
		return []engine.Input{bytes(rows, trialInner/2, -128, 127), bytes(rows, trialInner/size, least, most), bytes(rows, 1, 1, 3)}
	}
	inputs := append(matrix(trialTokens), matrix(trialOutputs)...)
	got, err := d.Evaluate("trial of products of blocks", inputs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		codes := func(in []*graph.Node) Codes {
			return Codes{Parts: []*graph.Node{graph.ConvertDType(in[0], dtypes.Int8), graph.ConvertDType(in[1], dtypes.Int8), in[2]}}
		}
		x, w := codes(in[:3]), codes(in[3:])
		product, ok := blockProduct(x, w, false)
		if !ok {
			panic(errors.New("the trial has no kernel"))
		}
		return []*graph.Node{product, x.times(w)}
	})
	if err != nil {
		return fmt.Errorf("the device does not multiply four-bit floats: %w", err)
	}
	return t.compare(got[0], got[1])
}

// compare fails if the product of a kernel is too far from that of the values. These are exact in bfloat16, so that only sums
// are rounded.
func (blockTrial) compare(kernel, values []float32) error {
	const tolerance = 1e-4
	difference, size := 0.0, 0.0
	for i, want := range values {
		difference += math.Pow(float64(kernel[i])-float64(want), 2)
		size += math.Pow(float64(want), 2)
	}
	if size == 0 {
		return errors.New("the device computes nothing but zeros")
	}
	if e := math.Sqrt(difference / size); !(e <= tolerance) {
		return fmt.Errorf("a product of four-bit floats has a relative error of %.2g beside that of their values: want at most %g", e, tolerance)
	}
	return nil
}
