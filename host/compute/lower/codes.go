package lower

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Codes represents a quantized matrix [n, m] by 8-bit integers, int8[n, m], and a scale for each
// row, float32[n, 1].
type Codes struct {
	Integers, Scale *graph.Node
	// moved reports whether rows were removed or reordered. Rounding depends on it; see
	// [ProductOfCodes].
	moved bool
}

// AttachTo attaches the codes to the node of their value, where [CodesOf] finds them. Gradients
// flow only through the value.
func (c Codes) AttachTo(value *graph.Node) {
	engine.Note(value, Codes{graph.StopGradient(c.Integers), graph.StopGradient(c.Scale), c.moved})
}

// CodesOf returns the codes attached to a value; ok is false if there are none.
func CodesOf(value *graph.Node) (c Codes, ok bool) { return engine.NoteOf[Codes](value) }

// Map returns the codes of f(value), where f may only remove or reorder rows.
func (c Codes) Map(f func(rows *graph.Node) *graph.Node) Codes {
	return Codes{f(c.Integers), f(c.Scale), true}
}

// Parts returns the integers and the scales.
func (c Codes) Parts() []*graph.Node { return []*graph.Node{c.Integers, c.Scale} }

// CodesFrom returns the codes with the given parts, in the order of [Codes.Parts].
func CodesFrom(parts []*graph.Node) Codes { return Codes{Integers: parts[0], Scale: parts[1]} }

// CodeShapes returns the shapes of the parts of the codes that Forward attaches to its value on the
// device; nil if it attaches none.
func (q *FakeQuantizer) CodeShapes(d *engine.Device) []shapes.Shape {
	p, coded := q.factoredForward(d)
	if !coded {
		return nil
	}
	var list []shapes.Shape
	for _, name := range []string{passes.OutputIntegers, passes.OutputScale} {
		id, _ := p.Output(name)
		list = append(list, shapes.Make(q.memory.dtype(name), p.TypeOf(id).Shape...))
	}
	return list
}

// factoredForward returns the program of the forward pass for a device. coded reports that its
// outputs include the codes of the value, which requires that the device multiplies codes and that
// [passes.FactorRows] finds them.
func (q *FakeQuantizer) factoredForward(d *engine.Device) (p *program.Program, coded bool) {
	if d != nil && d.Products() == device.IntegerProducts {
		if p, ok := passes.FactorRows(q.parts.Forward, spec.OutputValue); ok {
			return p, true
		}
	}
	return q.parts.Forward, false
}

// Coded returns a call of a quantizer with the codes of its value as last results, for products of
// codes. ok is false if it has none on the device.
func Coded(c *program.Call, d *engine.Device) (coded *program.Call, ok bool) {
	if d.Products() != device.IntegerProducts {
		return nil, false
	}
	with := *c
	with.Meaning, ok = passes.FactorRows(c.Meaning, spec.OutputValue)
	return &with, ok
}

func codesAmong(out map[string]*graph.Node) Codes {
	return Codes{Integers: out[passes.OutputIntegers], Scale: out[passes.OutputScale]}
}

// codesInMemory specifies that kernels store codes in 8 bits.
var codesInMemory = InMemory{passes.OutputIntegers: passes.Int8}

// ProductOfCodes returns x·wᵀ, of shape [rows of x, rows of w], computed from the codes of both. ok
// is false if x or w has no codes, or if codes of these sizes cannot be multiplied. If rounded is
// set, the product is rounded to the device's precision.
//
// It multiplies the integers, which is exact, then scales by the rows of x, then by the rows of w.
// It rounds where XLA does. Normally XLA fuses both scalings with the product and rounds once, when
// the result is stored. But if rows of w were moved, the scales of w come from a gather, which XLA
// does not fuse with the product: it stores the rounded product of the integers and the scales of
// x, and the operation that reads it multiplies by the scales of w.
func ProductOfCodes(x, w *graph.Node, rounded bool) (product *graph.Node, ok bool) {
	a, xCoded := CodesOf(x)
	b, wCoded := CodesOf(w)
	if !xCoded || !wCoded || a.Integers.Shape().Dim(1) > matmul.MaxCodes {
		return nil, false
	}
	if b.moved && rounded {
		product = engine.DotIntegers(a.Integers, b.Integers, a.Scale, nil, true)
		scale := graph.Reshape(b.Scale, 1, -1)
		return graph.Mul(product, graph.BroadcastToDims(scale, product.Shape().Dimensions...)), true
	}
	return engine.DotIntegers(a.Integers, b.Integers, a.Scale, b.Scale, rounded), true
}
