package reference

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// Run executes p, which must be valid ([program.Program.Validate]), on the given
// inputs and returns its outputs, both by name. The error names an input that is
// missing, unknown or of another type than declared, or a factorization that did
// not converge.
func Run(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, false)
}

// Run32 is [Run] in the precision of a device: each float input, and the result
// of each operation, is rounded to binary32. Inside one operation (a sum, a
// product of matrices, a hadamard) the computation stays in binary64.
func Run32(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, true)
}

// RunArgs is [Run] with inputs and outputs by position.
func RunArgs(p *program.Program, args ...Tensor) ([]Tensor, error) {
	return run(p, args, false)
}

func runNamed(p *program.Program, inputs map[string]Tensor, single bool) (map[string]Tensor, error) {
	args := make([]Tensor, len(p.Inputs))
	for i, in := range p.Inputs {
		t, ok := inputs[in.Name]
		if !ok {
			return nil, fmt.Errorf("program %q: input %q (%s) is missing", p.Name, in.Name, in.Type)
		}
		args[i] = t
	}
	for name := range inputs {
		if p.Input(name) < 0 {
			return nil, fmt.Errorf("program %q has no input %q", p.Name, name)
		}
	}
	results, err := run(p, args, single)
	if err != nil {
		return nil, err
	}
	named := make(map[string]Tensor, len(results))
	for i, o := range p.Outputs {
		named[o.Name] = results[i]
	}
	return named, nil
}

func run(p *program.Program, args []Tensor, single bool) ([]Tensor, error) {
	if len(args) != len(p.Inputs) {
		return nil, fmt.Errorf("program %q takes %d inputs, got %d", p.Name, len(p.Inputs), len(args))
	}
	round := func(t Tensor) Tensor {
		if single {
			return t.Single()
		}
		return t
	}
	inputs := make([]Tensor, len(args))
	for i, in := range p.Inputs {
		if !args[i].Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q is %s, got %s", p.Name, in.Name, in.Type, args[i].Type)
		}
		if err := args[i].check(); err != nil {
			return nil, fmt.Errorf("program %q: input %q: %w", p.Name, in.Name, err)
		}
		inputs[i] = round(args[i])
	}
	var failed error
	values := program.Interpret(p, inputs, func(id program.ID, n *program.Node, args []Tensor) Tensor {
		if failed != nil {
			return Tensor{}
		}
		out, err := Apply(n, args...)
		if err != nil {
			failed = fmt.Errorf("program %q: %%%d = %s: %w", p.Name, id, n.Op, err)
		}
		return round(out)
	})
	if failed != nil {
		return nil, failed
	}
	results := make([]Tensor, len(p.Outputs))
	for i, o := range p.Outputs {
		results[i] = values[o.Value].Clone()
	}
	return results, nil
}

// Apply executes one node of a valid program on its operands. The result may share
// memory with them. The error says that a factorization did not converge.
func Apply(n *program.Node, args ...Tensor) (Tensor, error) {
	return operations[n.Op](n, args)
}
