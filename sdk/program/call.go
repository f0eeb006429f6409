package program

import (
	"errors"
	"fmt"
	"slices"
)

// OpCall is the operation of a [Call]. It is in no list of operations: calls do not travel between
// processes, and its number is not part of the wire format.
const OpCall Op = 1<<16 - 1

// A Call is an operation that a program defines. An executor may compute calls whose names it knows
// with its own code, which must agree with the program; package transform replaces other calls by
// their programs. So a model states what it computes, in parts that have fast code.
type Call struct {
	Name string
	// Setting holds the parameters of the meaning, numbers or a name, for readers and executors.
	Setting any
	Meaning *Program // from [Builder.Build]; it takes the operands as its inputs, in order
	// Adjoint, unless nil, is the call's gradient in place of that of its meaning. Its inputs are
	// operands and results of the call, by name, and last the adjoint of the first result; its outputs
	// are the adjoints of the operands, "d." and the name.
	Adjoint *Program
	// Of is the call whose adjoint this is; or, if Adds is set, the call to whose first result this
	// one adds its last operand.
	Of   *Call
	Adds bool
}

// Call applies c to operands, and returns the outputs of its meaning.
func (b *Builder) Call(c *Call, args ...Value) []Value {
	outputs := make([]Value, len(c.Meaning.Outputs))
	for i := range outputs {
		outputs[i] = b.Apply(OpCall, Attr{Call: c, Output: i}, Type{}, args...)
	}
	return outputs
}

// SameCall reports whether two nodes are results of the same call.
func (n *Node) SameCall(m *Node) bool {
	return n.Op == OpCall && m.Op == OpCall && n.Attr.Call == m.Attr.Call &&
		slices.Equal(n.Args, m.Args)
}

var callRow = row{
	OpInfo: OpInfo{Op: OpCall, Name: "call", Class: ClassCall, Arity: -1, Operands: "any",
		Meaning: "An output of a program."},
	infer: inferCall, uses: usesCall, gradient: gradient{text: "a call of the program's gradient"},
}

func inferCall(args []Type, attr Attr, _ Type) (Type, error) {
	if attr.Call == nil || attr.Call.Meaning == nil {
		return Type{}, errors.New("has no program to call: calls do not travel between processes")
	}
	p := attr.Call.Meaning
	if !slices.EqualFunc(args, p.Inputs, func(t Type, in Input) bool { return t.Equal(in.Type) }) {
		return Type{}, fmt.Errorf("%s takes %v, got %v", attr.Call.Name, p.Inputs, args)
	}
	if attr.Output < 0 || attr.Output >= len(p.Outputs) {
		return Type{}, fmt.Errorf("%s has no output %d", attr.Call.Name, attr.Output)
	}
	return p.TypeOf(p.Outputs[attr.Output].Value), nil
}
