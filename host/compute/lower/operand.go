package lower

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Operand is the quantizer for an operand of a product in the backward pass. It has no gradient.
type Operand struct {
	quantizer Quantizer // its program returns the value alone
}

// NewOperand prepares a quantizer's training program, which must be valid. It fails if the
// quantizer has trained parameters, which would get no gradient.
func NewOperand(q spec.Quantizer) (Operand, error) {
	if len(q.Trained) > 0 {
		return Operand{}, fmt.Errorf("the quantizer has the trained parameter %s, which would get no "+
			"gradient: in products of the backward pass only values are quantized", q.Trained[0].Name)
	}
	if len(q.State) > 0 {
		return Operand{}, fmt.Errorf("the quantizer has the state %s: quantizers of products of the "+
			"backward pass cannot have any", q.State[0].Name)
	}
	value, _ := q.Program.Output(spec.OutputValue)
	outputs := []program.Output{{Name: spec.OutputValue, Value: value}}
	p, err := transform.Extract(q.Program, q.Program.Name, transform.Arguments(q.Program), outputs)
	if err != nil {
		return Operand{}, err
	}
	call := &program.Call{Name: "quantize", Setting: p.Name, Meaning: p}
	return Operand{&FakeQuantizer{spec: spec.Quantizer{Program: p}, forward: call}}, nil
}

// Call returns the quantizer as a call, for programs.
func (o Operand) Call() *program.Call { return o.quantizer.forward }

// Takes reports whether the quantizer takes the named per-step input; see [FakeQuantizer.Takes].
func (o Operand) Takes(input string) bool { return o.quantizer.Takes(input) }

// Value returns Q(x), through which no gradient passes. If the device computes programs with
// kernels, x and Q(x) are rounded to bfloat16, as they are in [Quantize].
func (o Operand) Value(x *graph.Node, given Given) *graph.Node {
	p, memory := o.quantizer.spec.Program, InMemory{
		spec.InputX: passes.BFloat16, spec.OutputValue: passes.BFloat16}
	inputs := append([]*graph.Node{x}, o.quantizer.others(p, given)...)
	return lowerRows(x.Graph(), p, rowsOf(p), inputs, memory)[spec.OutputValue]
}
