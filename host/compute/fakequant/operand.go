package fakequant

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Operand is the quantizer for an operand of a product in the backward pass. It has no gradient.
type Operand struct {
	call *program.Call // its meaning returns the value alone
}

// NewOperand prepares a valid training program of a quantizer. It fails if the quantizer has state
// or trained parameters, which would get no gradient.
func NewOperand(q spec.Quantizer) (Operand, error) {
	if len(q.Trained) > 0 {
		return Operand{}, fmt.Errorf("the quantizer has the trained parameter %s, which would get no "+
			"gradient: in products of the backward pass only values are quantized", q.Trained[0].Name)
	}
	if len(q.State) > 0 {
		return Operand{}, fmt.Errorf("the quantizer has the state %s: quantizers of products of the "+
			"backward pass cannot have any", q.State[0].Name)
	}
	p, err := transform.Trim(q.Program, spec.OutputValue)
	if err != nil {
		return Operand{}, err
	}
	return Operand{&program.Call{Name: calls.Quantize, Setting: p.Name, Meaning: p}}, nil
}

// Call returns the quantizer as a call, for programs.
func (o Operand) Call() *program.Call { return o.call }

// Takes reports whether the quantizer takes the named per-step input; see [Quantizer.Takes].
func (o Operand) Takes(input string) bool { return o.call.Meaning.Input(input) >= 0 }
