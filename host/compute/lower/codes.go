package lower

import (
	"errors"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/answer"
	"github.com/cage-qat/cage/sdk/program"
)

// Codes represents a quantized matrix by small numbers and their scales, in the form in which its device multiplies
// them: see [engine.Products].
type Codes struct {
	Parts []*graph.Node // each has one row for each row of the matrix
	moved bool          // whether rows were removed or reordered, on which rounding depends: see integerProduct
}

// AttachTo attaches the codes to the node of their value, where [CodesOf] finds them. Gradients pass through the value only.
func (c Codes) AttachTo(value *graph.Node) {
	engine.Note(value, c.each(graph.StopGradient))
}

// CodesOf returns the codes of a value, if they are known.
func CodesOf(value *graph.Node) (c Codes, ok bool) { return engine.NoteOf[Codes](value) }

// Map returns the codes of f(value), where f removes or reorders rows.
func (c Codes) Map(f func(rows *graph.Node) *graph.Node) Codes {
	c = c.each(f)
	c.moved = true
	return c
}

func (c Codes) each(f func(part *graph.Node) *graph.Node) Codes {
	parts := make([]*graph.Node, len(c.Parts))
	for i, part := range c.Parts {
		parts[i] = f(part)
	}
	c.Parts = parts
	return c
}

func (q programQuantizer) CodeShapes(d *engine.Device) (parts []shapes.Shape) {
	p, c := q.factoredForward(d)
	if c == nil {
		return nil
	}
	for _, name := range c.parts {
		id, _ := p.Output(name)
		parts = append(parts, shapes.Make(q.memory.dtype(name), p.TypeOf(id).Shape...))
	}
	return parts
}

// factoredForward returns the program of the forward pass for a device. If the device multiplies codes and package factor
// finds the codes of the value, they are further outputs of the program, and c is their form. Otherwise c is nil.
func (q programQuantizer) factoredForward(d *engine.Device) (p *program.Program, c *coding) {
	if c = codingOf(d); c != nil {
		if p, ok := c.factor(q.parts.Forward, answer.OutputValue); ok {
			return p, c
		}
	}
	return q.parts.Forward, nil
}

// ProductOfCodes returns x·wᵀ, of shape [rows of x, rows of w], computed from the codes of both. ok is false if one of
// them has no codes, or if codes of these sizes cannot be multiplied. If rounded is set, the product is rounded to the device's
// precision.
func ProductOfCodes(x, w *graph.Node, rounded bool) (product *graph.Node, ok bool) {
	a, b, c := operandCodes(x, w)
	if c == nil {
		return nil, false
	}
	return c.product(a, b, rounded)
}

// AddProductOfCodes returns sum + x·wᵀ if the device can compute both at once.
func AddProductOfCodes(sum, x, w *graph.Node) (total *graph.Node, ok bool) {
	a, b, c := operandCodes(x, w)
	if c == nil || c.add == nil {
		return nil, false
	}
	return c.add(sum, a, b)
}

// operandCodes returns the codes of both matrices of a product, and their form; the form is nil if one of them has no codes.
func operandCodes(x, w *graph.Node) (a, b Codes, c *coding) {
	a, xCoded := CodesOf(x)
	b, wCoded := CodesOf(w)
	if !xCoded || !wCoded {
		return a, b, nil
	}
	return a, b, codingOf(engine.DeviceOf(x.Graph()))
}

// A coding is a form of [Codes]: how they are found in programs, and multiplied.
type coding struct {
	// factor returns the program with the codes of one of its outputs as further outputs. ok is false if it finds none.
	factor func(p *program.Program, output string) (factored *program.Program, ok bool)
	parts  []string // names of these outputs
	// product implements [ProductOfCodes].
	product func(x, w Codes, rounded bool) (product *graph.Node, ok bool)
	// add implements [AddProductOfCodes]; nil if no operation of the device does both.
	add func(sum *graph.Node, x, w Codes) (total *graph.Node, ok bool)
}

var (
	// integers are codes in int8[n, m], with one scale for each row in float32[n, 1].
	integers = &coding{factor.Rows, []string{factor.OutputIntegers, factor.OutputScale}, integerProduct, nil}
	// blocks are codes in E2M1, two in each byte of int8[n, m/2]. Each block of them has a scale of one byte, and each row
	// has one in float32[n, 1].
	blocks = &coding{factor.Blocks, []string{factor.OutputPacked, factor.OutputScales, factor.OutputOverall}, blockProduct, addBlockProduct}
)

// codesInMemory says that kernels store codes in 8 bits.
var codesInMemory = InMemory{factor.OutputIntegers: triton.Int8, factor.OutputPacked: triton.Int8, factor.OutputScales: triton.Int8}

// codingOf returns the form of codes that a device multiplies; nil if it multiplies values.
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

// codes picks the codes among the outputs of a program that c.factor has returned.
func (c *coding) codes(out map[string]*graph.Node) (codes Codes) {
	for _, name := range c.parts {
		codes.Parts = append(codes.Parts, out[name])
	}
	return codes
}

// integerProduct multiplies the integers, which is exact, then multiplies by the scales of x's rows, and then by those of w's
// rows.
//
// Where it rounds follows what XLA does. Normally XLA fuses both multiplications by scales with the product, and rounds
// once, when the result is stored. If rows of w were moved, its scales are the result of a gather, which XLA does not fuse
// with the product: it stores the product of the integers and the scales of x, rounded, and multiplies by the scales of w
// in the operation that reads it.
func integerProduct(x, w Codes, rounded bool) (product *graph.Node, ok bool) {
	if x.Parts[0].Shape().Dim(1) > engine.LongestIntegers {
		return nil, false
	}
	if w.moved && rounded {
		product = engine.DotIntegers(x.Parts[0], w.Parts[0], x.Parts[1], nil, true)
		return graph.Mul(product, graph.BroadcastToDims(graph.Reshape(w.Parts[1], 1, -1), product.Shape().Dimensions...)), true
	}
	return engine.DotIntegers(x.Parts[0], w.Parts[0], x.Parts[1], w.Parts[1], rounded), true
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
