// Package transform analyzes and rewrites programs, for hosts and tools: it interprets them over
// any domain, copies parts of them into other programs, inlines them, and simplifies them. Authors
// of plugins do not need it.
package transform

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Interpret traverses p, which must be valid, and computes a T for every value: inputs holds the Ts
// of the inputs, and node computes the T of a node from the Ts of its operands. T is a
// [program.Value] to copy a program, a tensor to execute it, and a flag or a bound to analyze it.
func Interpret[T any](p *program.Program, inputs []T,
	node func(id program.ID, n *program.Node, args []T) T) []T {
	of := append(make([]T, 0, p.NumValues()), inputs...)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		args := make([]T, len(n.Args))
		for j, a := range n.Args {
			args[j] = of[a]
		}
		of = append(of, node(program.ID(len(of)), n, args))
	}
	return of
}

// Needs marks the given values and all values that they are computed from.
func Needs(p *program.Program, values []program.Output) []bool {
	marks := make([]bool, p.NumValues())
	for _, v := range values {
		marks[v.Value] = true
	}
	for i, n := range slices.Backward(p.Nodes) {
		if marks[len(p.Inputs)+i] {
			for _, a := range n.Args {
				marks[a] = true
			}
		}
	}
	return marks
}

// Depends marks the values of p that depend on one of the chosen inputs, and these inputs.
func Depends(p *program.Program, choose func(input int) bool) []bool {
	inputs := make([]bool, len(p.Inputs))
	for i := range inputs {
		inputs[i] = choose(i)
	}
	return Interpret(p, inputs, func(_ program.ID, _ *program.Node, args []bool) bool {
		return slices.Contains(args, true)
	})
}

// Copy writes into b the operations of p, which must be valid, that can be computed from the given
// values. given holds, for each value of p by ID, the corresponding value of b, or an absent Value.
// Copy returns this list completed by the values that it wrote. Build drops unused nodes.
func Copy(b *program.Builder, p *program.Program, given []program.Value) []program.Value {
	return Interpret(p, given[:len(p.Inputs)], func(id program.ID, n *program.Node,
		args []program.Value) program.Value {
		if given[id].Valid() || slices.Contains(args, program.Value{}) {
			return given[id]
		}
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	})
}

// Inputs declares the inputs of p in b and returns them in the form that [Copy] takes. If choose is
// not nil, only the inputs that it chooses are declared.
func Inputs(b *program.Builder, p *program.Program, choose func(program.ID) bool) []program.Value {
	given := make([]program.Value, p.NumValues())
	for i, in := range p.Inputs {
		if choose == nil || choose(program.ID(i)) {
			given[i] = b.Input(in.Name, in.Type)
		}
	}
	return given
}

// Simplify returns a cheaper program with the inputs and outputs of p, which must be valid, and
// bitwise equal results: see [program.NewSimplifier]. Unused nodes are dropped.
func Simplify(p *program.Program) (*program.Program, error) {
	b := program.NewSimplifier(p.Name)
	values := Copy(b, p, Inputs(b, p, nil))
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return b.Build()
}

// Expand replaces calls by their meanings, except the calls that keep selects (nil selects
// none). Before and after:
//
//	%3 = block %0 %1 %2            %3 = rms_norm %0 %1
//	                               %4 = linear %3 %2
//
// Equal operations are computed once: the backward pass of a call reads what the forward pass has
// computed. The adjoint of a call whose name is recompute computes it anew, so that its values need
// not stay in memory; "" is no name. Its operands go through stop_gradient, so that its
// operations differ from those of the forward pass.
func Expand(p *program.Program, keep func(*program.Call) bool, recompute string) (
	*program.Program, error) {
	expanded := func(n program.Node) bool {
		return n.Op == program.OpCall && (keep == nil || !keep(n.Attr.Call))
	}
	for slices.ContainsFunc(p.Nodes, expanded) {
		b, results := program.NewSimplifier(p.Name), map[string]map[string]program.Value{}
		values := Interpret(p, Inputs(b, p, nil)[:len(p.Inputs)], func(_ program.ID, n *program.Node,
			args []program.Value) program.Value {
			c := n.Attr.Call
			if !expanded(*n) {
				return b.Apply(n.Op, n.Attr, n.Type, args...)
			}
			key := fmt.Sprintf("%p %v", c, n.Args)
			if results[key] == nil {
				if c.Of != nil && c.Of.Name == recompute {
					for i := range args {
						args[i] = args[i].StopGradient()
					}
				}
				results[key] = Inline(b, c.Meaning, args...)
			}
			return results[key][c.Meaning.Outputs[n.Attr.Output].Name]
		})
		for _, o := range p.Outputs {
			b.Output(o.Name, values[o.Value])
		}
		var err error
		if p, err = b.Build(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Extract returns, as a program of the given name, the part of p that computes targets from
// sources. p must be valid. It is an error if a target depends on an input of p that is neither a
// source nor needed only to compute one.
func Extract(
	p *program.Program, name string, sources, targets []program.Output,
) (*program.Program, error) {
	b := program.NewBuilder(name)
	given := make([]program.Value, p.NumValues())
	for _, v := range sources {
		given[v.Value] = b.Input(v.Name, p.TypeOf(v.Value))
	}
	values := Copy(b, p, given)
	for _, v := range targets {
		b.Output(v.Name, values[v.Value])
	}
	return b.Build()
}

// Arguments lists the inputs of p as named values.
func Arguments(p *program.Program) []program.Output {
	list := make([]program.Output, len(p.Inputs))
	for i, in := range p.Inputs {
		list[i] = program.Output{Name: in.Name, Value: program.ID(i)}
	}
	return list
}

// Trim returns a program with the same inputs and only the named outputs, in that
// order, without the nodes that no output needs.
func Trim(p *program.Program, outputs ...string) (*program.Program, error) {
	wanted := make([]program.Output, len(outputs))
	for i, name := range outputs {
		id, ok := p.Output(name)
		if !ok {
			return nil, fmt.Errorf("program %q has no output %q", p.Name, name)
		}
		wanted[i] = program.Output{Name: name, Value: id}
	}
	return Extract(p, p.Name, Arguments(p), wanted)
}

// Inline adds the operations of p, which must be valid, with args substituted for
// its inputs, and returns its outputs by name.
func Inline(b *program.Builder, p *program.Program,
	args ...program.Value) map[string]program.Value {
	results := make(map[string]program.Value, len(p.Outputs))
	if b.Err() != nil {
		return results
	}
	if len(args) != len(p.Inputs) {
		b.Fail(fmt.Errorf("program %q takes %d inputs, got %d", p.Name, len(p.Inputs), len(args)))
		return results
	}
	for i, arg := range args {
		if err := b.CheckValue(arg); err != nil {
			b.Fail(fmt.Errorf("program %q: input %q: %w", p.Name, p.Inputs[i].Name, err))
			return results
		}
		if !arg.Type().Equal(p.Inputs[i].Type) {
			b.Fail(fmt.Errorf("program %q: input %q is %s, got %s", p.Name, p.Inputs[i].Name,
				p.Inputs[i].Type, arg.Type()))
			return results
		}
	}
	values := Copy(b, p, append(slices.Clone(args), make([]program.Value, len(p.Nodes))...))
	for _, o := range p.Outputs {
		results[o.Name] = values[o.Value]
	}
	return results
}
