package fakequant

import (
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// A quantized matrix [n, m] may be 8-bit integers, int8[n, m], times a scale for each row,
// float32[n, 1]: its codes.

// CodeShapes returns the shapes of the codes that Forward returns: those of the integers and of the
// scales; nil if the quantizer has none, or if sums of so many products could exceed 32 bits.
func (q *Quantizer) CodeShapes() []shapes.Shape {
	p := q.parts.Forward
	x := p.Inputs[0].Type
	with, ok := passes.FactorRows(p, spec.OutputValue)
	if !ok || x.Shape[x.Rank()-1] > matmul.MaxCodes {
		return nil
	}
	shapeOf := func(dtype shapes.DType, name string) shapes.Shape {
		id, _ := with.Output(name)
		return shapes.Make(dtype, with.TypeOf(id).Shape...)
	}
	return []shapes.Shape{shapeOf(shapes.Int8, passes.OutputIntegers),
		shapeOf(shapes.Float32, passes.OutputScale)}
}

// Coded returns a call of a quantizer with the codes of its value as last results, for products of
// codes. ok is false if it has none.
func Coded(c *program.Call) (coded *program.Call, ok bool) {
	with := *c
	with.Meaning, ok = passes.FactorRows(c.Meaning, spec.OutputValue)
	return &with, ok
}

// codeOutputs are the outputs of a program that are the codes of its value.
var codeOutputs = []string{passes.OutputIntegers, passes.OutputScale}
