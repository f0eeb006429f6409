package lower

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
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
	if c = codingOf(d, int(q.parts.Forward.Inputs[0].Type.Size())/q.rows()); c != nil {
		if p, ok := c.factor(q.parts.Forward, spec.OutputValue); ok {
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
	return a, b, codingOf(engine.DeviceOf(x.Graph()), x.Shape().Dim(-1))
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

// integers are codes in int8[n, m], with one scale for each row in float32[n, 1].
var integers = &coding{factor.Rows, []string{factor.OutputIntegers, factor.OutputScale}, integerProduct, nil}

// codesInMemory says that kernels store codes in 8 bits.
var codesInMemory = InMemory{factor.OutputIntegers: triton.Int8, factor.OutputPacked: triton.Int8, factor.OutputScales: triton.Int8}

// codingOf returns the form of codes that a device multiplies, of matrices with rows of about that length; nil if it multiplies
// values.
func codingOf(d *engine.Device, length int) *coding {
	switch {
	case d == nil:
	case d.Products() == device.IntegerProducts && multipliesIntegers(d, length):
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
