package refresh

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Execute runs p, which must be valid, on inputs by name, and returns its outputs by
// name. Outputs may share memory with inputs and with each other. The error names an
// input that is missing or has the wrong type, or a factorization that did not converge.
func Execute(p *program.Program, inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	e := &execution{p: p, memory: memories.Get().(*memory), values: make([]reference.Tensor, p.NumValues())}
	defer e.close()
	for i, in := range p.Inputs {
		x, ok := inputs[in.Name]
		if !ok || !x.Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q must be %s, got %s", p.Name, in.Name, in.Type, x.Type)
		}
		e.values[i] = x
	}
	last := lastUses(p)
	for i := range p.Nodes {
		n, id := &p.Nodes[i], program.ID(len(p.Inputs)+i)
		if err := e.node(n, id); err != nil {
			return nil, fmt.Errorf("program %q: %%%d = %s: %w", p.Name, id, n.Op, err)
		}
		for _, a := range n.Args {
			if last[a] == i {
				x := e.values[a]
				e.values[a] = reference.Tensor{}
				e.drop(x, e.values)
			}
		}
	}
	outputs := make(map[string]reference.Tensor, len(p.Outputs))
	for _, o := range p.Outputs {
		outputs[o.Name] = e.values[o.Value]
	}
	return outputs, nil
}

// execution holds the values of a program while it runs.
type execution struct {
	*memory
	p      *program.Program
	values []reference.Tensor
}

// lastUses gives, for each value, the index of the last node that reads it; the number
// of nodes for an output.
func lastUses(p *program.Program) []int {
	last := make([]int, p.NumValues())
	for i := range p.Nodes {
		for _, a := range p.Nodes[i].Args {
			last[a] = i
		}
	}
	for _, o := range p.Outputs {
		last[o.Value] = len(p.Nodes)
	}
	return last
}

// node executes the node that defines id.
func (e *execution) node(n *program.Node, id program.ID) (err error) {
	args := make([]reference.Tensor, len(n.Args))
	for i, a := range n.Args {
		args[i] = e.values[a]
	}
	out := &e.values[id]
	floats := n.Type.DType == program.Float
	switch op := n.Op; {
	case floats && (op == program.OpAdd || op == program.OpSub || op == program.OpMul || op == program.OpDiv):
		*out = e.arithmetic(n, args[0], args[1])
	case op == program.OpSelect && floats && chooses(n, args):
		*out = e.choose(args[0], args[1], args[2])
	case op == program.OpTranspose && floats:
		*out = e.transpose(args[0], n.Attr.Axes)
	case op == program.OpDot:
		*out = e.dot(n, args[0], args[1])
	case op == program.OpSortColumns:
		*out = e.sortColumns(args[0], args[1])
	case op == program.OpQR:
		*out = e.qr(args[0])
	case op == program.OpEighValues || op == program.OpEighVectors:
		if out.Len() == 0 {
			err = e.eigh(n.Args[0])
		}
	default:
		*out, err = reference.Apply(n, args...)
	}
	return err
}
