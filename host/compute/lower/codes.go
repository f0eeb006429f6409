package lower

import (
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// A quantized matrix [n, m] may be 8-bit integers, int8[n, m], times a scale for each row,
// float32[n, 1]: its codes.

// CodeShapes returns the shapes of the codes that Forward returns on the device: those of the
// integers and of the scales; nil if it returns none.
func (q *FakeQuantizer) CodeShapes(d *engine.Device) []shapes.Shape {
	p, coded := factored(q.parts.Forward, d)
	if !coded {
		return nil
	}
	var list []shapes.Shape
	for _, name := range codeOutputs {
		id, _ := p.Output(name)
		list = append(list, shapes.Make(codesInMemory.dtype(name), p.TypeOf(id).Shape...))
	}
	return list
}

// factored returns the program of a quantizer with codes of its value. ok is false if it has none,
// if the device does not multiply codes, or if sums of so many products could exceed 32 bits.
func factored(p *program.Program, d *engine.Device) (with *program.Program, ok bool) {
	x := p.Inputs[0].Type
	if d == nil || d.Products() != device.IntegerProducts || x.Shape[x.Rank()-1] > matmul.MaxCodes {
		return nil, false
	}
	return passes.FactorRows(p, spec.OutputValue)
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

// codesInMemory specifies that kernels store codes in 8 bits.
var codesInMemory = InMemory{passes.OutputIntegers: passes.Int8}
