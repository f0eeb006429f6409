package lower

import (
	"errors"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
)

// A coding is a form of [Codes].
type coding struct {
	// factor adds the codes of an output to a program, as outputs of these names. It is not ok where it finds none.
	factor func(p *program.Program, output string) (factored *program.Program, ok bool)
	parts  []string
	// product is x·wᵀ, as [ProductOfCodes] has it.
	product func(x, w Codes, rounded bool) (product *graph.Node, ok bool)
	// add is [AddProductOfCodes]; nil where it is no operation of its own.
	add func(sum *graph.Node, x, w Codes) (total *graph.Node, ok bool)
}

var (
	// integers are whole numbers, int8 [n, m], and a float32 for each row, [n, 1].
	integers = &coding{factor.Rows, []string{factor.OutputIntegers, factor.OutputScale}, integerProduct, nil}
	// blocks are numbers of E2M1, two in each int8 of [n, m/2], int8 scales of their blocks, and a float32 for each row.
	blocks = &coding{factor.Blocks, []string{factor.OutputPacked, factor.OutputScales, factor.OutputOverall}, blockProduct, addBlockProduct}
)

// codesInMemory says how codes that a kernel writes lie in memory.
var codesInMemory = InMemory{factor.OutputIntegers: triton.Int8, factor.OutputPacked: triton.Int8, factor.OutputScales: triton.Int8}

// codingOf is the form in which a device multiplies, nil where it multiplies values.
func codingOf(d *engine.Device) *coding {
	switch {
	case d == nil:
	case d.Products() == device.IntegerProducts:
		return integers
	case d.Products() == device.BlockProducts && multipliesBlocks(d):
		return blocks
	}
	return nil
}

// codes are those among the outputs of a program that c.factor has returned.
func (c *coding) codes(out map[string]*graph.Node) (codes Codes) {
	for _, name := range c.parts {
		codes.Parts = append(codes.Parts, out[name])
	}
	return codes
}

// integerProduct is a product of integers, which is exact, and two scales. XLA multiplies with a scale as it writes a
// product, but not with one whose rows were moved: then the product is rounded before, lies in memory so, and what reads
// it multiplies.
func integerProduct(x, w Codes, rounded bool) (product *graph.Node, ok bool) {
	if x.Parts[0].Shape().Dim(1) > engine.LongestIntegers {
		return nil, false
	}
	product = graph.ConvertDType(engine.DotIntegers(x.Parts[0], w.Parts[0]), dtypes.Float32)
	dims := product.Shape().Dimensions
	product = graph.Mul(product, graph.BroadcastToDims(x.Parts[1], dims...))
	if rounded && w.moved {
		product = engine.Rounded(product)
	}
	product = graph.Mul(product, graph.BroadcastToDims(graph.Reshape(w.Parts[1], 1, -1), dims...))
	if rounded && !w.moved {
		product = engine.Rounded(product)
	}
	return product, true
}

// blockProduct is one kernel. Values of a block are exact in bfloat16; what multiplies all of a row comes after the sums.
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

// blockKernel is the kernel of a product that is added to a sum, if there is one.
func blockKernel(sum *graph.Node, x, w Codes, out triton.Storage) (result *graph.Node, ok bool) {
	rows, inner, size := x.blockSizes()
	columns, _, other := w.blockSizes()
	if size != other { // MXFP4 times NVFP4
		return nil, false
	}
	k, err := triton.BlockProduct{Rows: rows, Columns: columns, Inner: inner, Block: size, Sum: sum != nil}.Kernel(out)
	if refusal := (*triton.Refusal)(nil); errors.As(err, &refusal) {
		warnOnce(x.Parts[0].Graph(), refusal, "a product of four-bit floats is computed from their values, which takes more time")
		return nil, false
	}
	inputs, parts := append(slices.Clone(x.Parts), w.Parts...), len(x.Parts)
	if sum != nil {
		inputs = append(inputs, sum)
	}
	results := engine.Kernel(*k).Call(inputs, func(in []*graph.Node) []*graph.Node {
		product := Codes{Parts: in[:parts]}.times(Codes{Parts: in[parts : 2*parts]})
		if sum != nil {
			product = graph.Add(in[2*parts], product)
		}
		return []*graph.Node{graph.ConvertDType(product, dtypeOf(out))}
	})
	return graph.ConvertDType(results[0], dtypes.Float32), true
}

// blockSizes are those of a matrix, and of its blocks.
func (c Codes) blockSizes() (rows, columns, size int) {
	numbers, scales := c.Parts[0].Shape(), c.Parts[1].Shape()
	return numbers.Dim(0), 2 * numbers.Dim(1), 2 * numbers.Dim(1) / scales.Dim(1)
}

// times is the product of blocks as operations, without broadcasts of its own, which the CPU loses in functions: see
// [engine.Loop].
func (c Codes) times(w Codes) *graph.Node {
	product := engine.DotGeneral(c.unblocked(), []int{1}, nil, w.unblocked(), []int{1}, nil)
	return graph.Mul(graph.Mul(product, c.Parts[2]), graph.Reshape(w.Parts[2], 1, -1))
}

// unblocked is the matrix that codes in blocks stand for, but for what multiplies all of a row.
func (c Codes) unblocked() *graph.Node {
	rows, columns, size := c.blockSizes()
	p := factor.Unblock(rows, columns, size, "x")
	float := func(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }
	return Lower(c.Parts[0].Graph(), p, []*graph.Node{float(c.Parts[0]), float(c.Parts[1])})["x"]
}
