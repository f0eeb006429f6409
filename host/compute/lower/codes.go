package lower

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Codes represents a quantized matrix by small numbers and their scales, in the form in which its device multiplies
// them: see [engine.Products].
type Codes struct {
	Parts []*graph.Node // each has one row for each row of the matrix
	moved bool          // rows were taken out or changed their order
}

// AttachTo records that these are the codes of a value. Gradients pass only through the value.
func (c Codes) AttachTo(value *graph.Node) {
	engine.Note(value, c.each(graph.StopGradient))
}

// CodesOf returns the codes of a value, if they are known.
func CodesOf(value *graph.Node) (c Codes, ok bool) {
	c, ok = engine.NoteOf(value).(Codes)
	return c, ok
}

// Map returns the codes of f(value), where f removes rows or changes their order.
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
	p, c := q.factored(d)
	if c == nil {
		return nil
	}
	for _, name := range c.parts {
		id, _ := p.Output(name)
		parts = append(parts, shapes.Make(q.memory.dtype(name), p.TypeOf(id).Shape...))
	}
	return parts
}

// factored is the program of the forward pass, with the codes of its value where the device multiplies them.
func (q programQuantizer) factored(d *engine.Device) (p *program.Program, c *coding) {
	if c = codingOf(d); c != nil {
		if p, ok := c.factor(q.parts.Forward, sdk.OutputValue); ok {
			return p, c
		}
	}
	return q.parts.Forward, nil
}

// ProductOfCodes returns x·wᵀ, [rows of x, rows of w], computed from the codes of both. ok is false if the codes of one
// are not known, or cannot be multiplied in these sizes. If rounded is set, the product is rounded to the device's
// precision.
func ProductOfCodes(x, w *graph.Node, rounded bool) (product *graph.Node, ok bool) {
	a, b, c := bothCodes(x, w)
	if c == nil {
		return nil, false
	}
	return c.product(a, b, rounded)
}

// AddProductOfCodes returns sum + x·wᵀ if the device can compute both at once.
func AddProductOfCodes(sum, x, w *graph.Node) (total *graph.Node, ok bool) {
	a, b, c := bothCodes(x, w)
	if c == nil || c.add == nil {
		return nil, false
	}
	return c.add(sum, a, b)
}

// bothCodes are the codes of two matrices and their form; nil where those of one are not known.
func bothCodes(x, w *graph.Node) (a, b Codes, c *coding) {
	a, known := CodesOf(x)
	b, both := CodesOf(w)
	if !known || !both {
		return a, b, nil
	}
	return a, b, codingOf(engine.DeviceOf(x.Graph()))
}
