package program

import "slices"

// Interpret goes through p, which must be valid, from its inputs to its last node and
// computes a T for every value: the T of an input is given, and the T of a node is what
// the function node returns for the Ts of its operands. T is a [Value] to copy a program,
// a tensor to execute it, and a mark or a bound to analyze it.
func Interpret[T any](p *Program, inputs []T, node func(id ID, n *Node, args []T) T) []T {
	of := append(make([]T, 0, p.NumValues()), inputs...)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		args := make([]T, len(n.Args))
		for j, a := range n.Args {
			args[j] = of[a]
		}
		of = append(of, node(ID(len(of)), n, args))
	}
	return of
}

// Needs marks the given values and all values that they are computed from.
func (p *Program) Needs(values []Output) []bool {
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

// Copy writes into b the operations of p, which must be valid, whose results follow from
// the given values. given has, for each value of p by number, the value of b that stands
// for it, or an absent one. The result is given, completed by the values that were
// written. Build drops what turns out to be unused.
func (b *Builder) Copy(p *Program, given []Value) []Value {
	return Interpret(p, given[:len(p.Inputs)], func(id ID, n *Node, args []Value) Value {
		if given[id].Valid() || slices.Contains(args, Value{}) {
			return given[id]
		}
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	})
}

// Extract returns, as a program of the given name, the part of p that computes the values
// in to from the values in from. p must be valid. It is an error if the values in to do
// not follow from those in from and from constants.
func (p *Program) Extract(name string, from, to []Output) (*Program, error) {
	b := NewBuilder(name)
	given := make([]Value, p.NumValues())
	for _, v := range from {
		given[v.Value] = b.Input(v.Name, p.TypeOf(v.Value))
	}
	values := b.Copy(p, given)
	for _, v := range to {
		b.Output(v.Name, values[v.Value])
	}
	return b.Build()
}

// Arguments lists the inputs of p as named values.
func (p *Program) Arguments() []Output {
	list := make([]Output, len(p.Inputs))
	for i, in := range p.Inputs {
		list[i] = Output{in.Name, ID(i)}
	}
	return list
}
