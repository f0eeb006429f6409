package lower

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/triton"
)

// This file multiplies four-bit floats, which is experimental. It is all that knows them in graphs: package factor finds them in
// programs (blocks.go), and package triton writes their product as a kernel (blocks.go).

// blocks are codes in E2M1, two in each byte of int8[n, m/2]. Each block of them has a scale of one byte, and each row has
// one in float32[n, 1].
var blocks = &coding{factor.Blocks, []string{factor.OutputPacked, factor.OutputScales, factor.OutputOverall}, blockProduct, addBlockProduct}

// multipliesBlocks reports whether a device multiplies codes in [blocks], by a kernel.
func multipliesBlocks(d *engine.Device) bool {
	if !hasTriton(d) {
		d.Once(FourBitProducts, func() any {
			d.Warn(valuesMultiplied, "reason", errors.New("the device has no kernels"))
			return nil
		})
		return false
	}
	return chosen(d, FourBitProducts, valuesMultiplied, func(elements int) (engine.Trial, error) {
		const rows = 8192 // with the largest tiles of such kernels, so that it is seen whether they fit the device's memory, too
		return blockTrial(rows, rows/4, elements/rows), nil
	})
}

// blockTrial multiplies random codes, with scales about 1, in both formats: [rows, inner] and [columns, inner].
func blockTrial(rows, columns, inner int) engine.Trial {
	t := engine.Trial{Compare: compareSums("four-bit floats", 1e-4)}
	rng := rand.New(rand.NewPCG(3, 4))
	bytes := func(least, most int, dims ...int) {
		name := fmt.Sprintf("bytes_%d", len(t.Inputs))
		t.Inputs = append(t.Inputs, repeated(name, func() float32 { return float32(int8(least + rng.IntN(most+1-least))) }, dims...))
	}
	for _, format := range []struct{ size, least, most int }{
		{factor.BlockE8M0, 124, 130}, // 2⁻³ to 2³
		{factor.BlockE4M3, 40, 72},   // ¼ to 4
	} {
		for _, n := range []int{rows, columns} {
			bytes(-128, 127, n, inner/2)
			bytes(format.least, format.most, n, inner/format.size)
			bytes(1, 3, n, 1)
		}
	}
	// Of each matrix both read three parts of its codes, or its values.
	const parts = 3
	t.Prepare = func(_ *graph.Graph, in []*graph.Node) (out []*graph.Node) {
		for m := range slices.Chunk(in, parts) {
			c := Codes{Parts: []*graph.Node{graph.ConvertDType(m[0], dtypes.Int8), graph.ConvertDType(m[1], dtypes.Int8), m[2]}}
			out = append(append(out, c.Parts...), engine.Operand(graph.Mul(c.dequantized(), c.Parts[2])))
		}
		return out
	}
	products := func(in []*graph.Node, multiply func(x, w []*graph.Node) *graph.Node) (out []*graph.Node) {
		for pair := range slices.Chunk(in, 2*(parts+1)) {
			out = append(out, multiply(pair[:parts+1], pair[parts+1:]))
		}
		return out
	}
	t.Fused = func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return products(in, func(x, w []*graph.Node) *graph.Node {
			product, ok := blockProduct(Codes{Parts: x[:parts]}, Codes{Parts: w[:parts]}, false)
			if !ok {
				panic(errors.New("the trial has no kernel"))
			}
			return product
		})
	}
	t.Plain = func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return products(in, func(x, w []*graph.Node) *graph.Node {
			value := func(m []*graph.Node) *graph.Node { return graph.ConvertDType(m[parts], dtypes.Float32) }
			return engine.DotGeneral(value(x), []int{1}, nil, value(w), []int{1}, nil)
		})
	}
	return t
}

// blockProduct is one kernel. It multiplies numbers times the scales of their blocks, which are exact in bfloat16, and applies
// the scales of rows to the sums.
func blockProduct(x, w Codes, rounded bool) (product *graph.Node, ok bool) {
	out := triton.Float32
	if rounded {
		out = triton.BFloat16
	}
	return blockKernel(nil, x, w, out)
}

func addBlockProduct(sum *graph.Node, x, w Codes) (total *graph.Node, ok bool) {
	return blockKernel(sum, x, w, triton.Float32)
}

// blockKernel is the kernel of x·wᵀ, or of sum + x·wᵀ if sum is not nil.
func blockKernel(sum *graph.Node, x, w Codes, out triton.Storage) (result *graph.Node, ok bool) {
	rows, inner, size := x.blockSizes()
	columns, _, other := w.blockSizes()
	if size != other { // MXFP4 and NVFP4 cannot be multiplied
		return nil, false
	}
	k, err := triton.BlockProduct{Rows: rows, Columns: columns, Inner: inner, Block: size, Sum: sum != nil}.Kernel(out)
	if refusal := (*triton.Refusal)(nil); errors.As(err, &refusal) {
		warnOnce(x.Parts[0].Graph(), refusal.Reason, refusal, "a product of four-bit floats is computed from their values, which takes more time")
		return nil, false
	}
	inputs, parts := append(slices.Clone(x.Parts), w.Parts...), len(x.Parts)
	if sum != nil {
		inputs = append(inputs, sum)
	}
	results := engine.Kernel(*k).Call(inputs, func(in []*graph.Node) []*graph.Node {
		product := Codes{Parts: in[:parts]}.dequantizedProduct(Codes{Parts: in[parts : 2*parts]})
		if sum != nil {
			product = graph.Add(in[2*parts], product)
		}
		return []*graph.Node{graph.ConvertDType(product, dtypeOf(out))}
	})
	return graph.ConvertDType(results[0], dtypes.Float32), true
}

// blockSizes returns the rows and columns of the matrix that has these codes, and the number of elements in a block.
func (c Codes) blockSizes() (rows, columns, size int) {
	numbers, scales := c.Parts[0].Shape(), c.Parts[1].Shape()
	return numbers.Dim(0), 2 * numbers.Dim(1), 2 * numbers.Dim(1) / scales.Dim(1)
}

// dequantizedProduct is the result of a blockKernel, computed by operations of the graph. It has no explicit broadcasts, because
// the Go backend loses those in functions: see [engine.Loop].
func (c Codes) dequantizedProduct(w Codes) *graph.Node {
	product := engine.DotGeneral(c.dequantized(), []int{1}, nil, w.dequantized(), []int{1}, nil)
	return graph.Mul(graph.Mul(product, c.Parts[2]), graph.Reshape(w.Parts[2], 1, -1))
}

// dequantized is the matrix that has these codes, without the scales of its rows.
func (c Codes) dequantized() *graph.Node {
	rows, columns, size := c.blockSizes()
	p := factor.Dequantize(rows, columns, size, "x")
	float := func(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }
	return Lower(c.Parts[0].Graph(), p, []*graph.Node{float(c.Parts[0]), float(c.Parts[1])})["x"]
}
