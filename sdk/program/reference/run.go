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
	return runNamed(p, inputs, exact)
}

// Run32 is [Run] in the precision of a device: each float input, and the result
// of each operation, is rounded to binary32. Inside one operation (a sum, a
// product of matrices, a hadamard) the computation stays in binary64.
func Run32(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, single)
}

// RunFast is [Run] with the products and QR decompositions of matrices computed in
// binary32, as a device would: for programs that run in earnest, from and to the memory
// of a device. Eigenvalues, and all other operations, are computed in binary64.
func RunFast(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, fast)
}

// RunArgs is [Run] with inputs and outputs by position.
func RunArgs(p *program.Program, args ...Tensor) ([]Tensor, error) {
	return run(p, args, exact)
}

// mode says in which precision a program is executed.
type mode int

const (
	exact  mode = iota
	single      // results are rounded
	fast        // products of matrices are computed in binary32
)

func runNamed(p *program.Program, inputs map[string]Tensor, mode mode) (map[string]Tensor, error) {
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
	results, err := run(p, args, mode)
	if err != nil {
		return nil, err
	}
	named := make(map[string]Tensor, len(results))
	for i, o := range p.Outputs {
		named[o.Name] = results[i]
	}
	return named, nil
}

func run(p *program.Program, args []Tensor, mode mode) ([]Tensor, error) {
	if len(args) != len(p.Inputs) {
		return nil, fmt.Errorf("program %q takes %d inputs, got %d", p.Name, len(p.Inputs), len(args))
	}
	m := &machine{p: p, mode: mode, memory: memories.Get().(*memory), values: make([]Tensor, p.NumValues()), eigen: map[program.ID]eigen{}}
	defer m.release()
	for i, in := range p.Inputs {
		t := args[i]
		if !t.Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q is %s, got %s", p.Name, in.Name, in.Type, t.Type)
		}
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("program %q: input %q: %w", p.Name, in.Name, err)
		}
		m.set(program.ID(i), t)
	}
	last := lastUses(p)
	for i := range p.Nodes {
		if err := m.step(&p.Nodes[i], program.ID(len(p.Inputs)+i)); err != nil {
			return nil, err
		}
		for _, a := range p.Nodes[i].Args {
			if last[a] == i {
				m.forget(m.values[a])
				m.values[a] = Tensor{}
			}
		}
	}
	results := make([]Tensor, len(p.Outputs))
	for i, o := range p.Outputs {
		results[i] = m.surrender(m.values[o.Value])
	}
	return results, nil
}

// lastUses gives, for each value, the index of the last node that reads it, so
// that its memory can go; the number of nodes for an output.
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

// machine holds the values of one execution.
type machine struct {
	*memory
	p      *program.Program
	mode   mode
	values []Tensor
	eigen  map[program.ID]eigen // decompositions by operand, shared by eigh_values and eigh_vectors
}

// set gives a value its tensor, and takes back all other memory that was taken for it.
func (m *machine) set(id program.ID, t Tensor) {
	m.values[id] = m.rounded(t)
	m.keep(m.values[id])
	m.sweep()
}

// step executes the node that defines id.
func (m *machine) step(n *program.Node, id program.ID) error {
	args := make([]Tensor, len(n.Args))
	for i, a := range n.Args {
		args[i] = m.values[a]
	}
	info, _ := n.Op.Info()
	var out Tensor
	var err error
	switch info.Class {
	case program.ClassSource:
		out = m.source(n, args)
	case program.ClassUnary:
		out = m.unary(n, args[0])
	case program.ClassBinary, program.ClassCompare:
		out = m.binary(n, args[0], args[1])
	case program.ClassElementwise:
		out = m.elementwise(n, args)
	case program.ClassShape:
		out = m.rearrange(n, args)
	case program.ClassReduce:
		out = m.reduce(n, args[0])
	case program.ClassLinear:
		out = m.linear(n, args)
	case program.ClassGradient:
		out = args[0]
	case program.ClassLinalg:
		out, err = m.factorize(n, args)
	}
	if err != nil {
		return fmt.Errorf("program %q: %%%d = %s: %w", m.p.Name, id, n.Op, err)
	}
	m.set(id, out)
	return nil
}

// rounded rounds the elements of a float tensor to binary32 in single precision.
func (m *machine) rounded(t Tensor) Tensor {
	if m.mode != single || t.Type.DType != program.Float {
		return t
	}
	data := m.floats.take(len(t.Floats))
	for i, v := range t.Floats {
		data[i] = float64(float32(v))
	}
	return Tensor{Type: t.Type, Floats: data}
}
