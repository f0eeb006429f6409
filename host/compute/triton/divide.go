package triton

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// A Division is a program in two parts: the first computes numbers that need whole
// tensors, such as their largest element; the second uses them and computes row by row.
type Division struct {
	// Whole takes the inputs of the program and returns the numbers that Rows takes, and
	// those outputs of the program that Rows does not have; nil if there are none.
	Whole *program.Program
	// Rows takes those inputs of the program that it needs, and the numbers of Whole,
	// which are named [NumberPrefix] and a number; nil if nothing is left for it.
	Rows *program.Program
}

// NumberPrefix begins the names of the values that go from one part of a division to the
// other.
const NumberPrefix = "whole."

// Divide cuts p, which must be valid, into what needs whole tensors and what needs one row at a time.
func Divide(p *program.Program, rows int) (Division, error) {
	w := &writer{p: p, rows: rows}
	whole := w.whole()
	var numbers, outside, inside []program.Output
	for _, o := range p.Outputs {
		if _, ok := w.layout(p.TypeOf(o.Value)); !ok {
			outside = append(outside, o)
		} else {
			inside = append(inside, o)
		}
	}
	needed := p.Needs(inside)
	for i := range p.Nodes {
		id := program.ID(len(p.Inputs) + i)
		if !needed[id] || whole[id] {
			continue
		}
		for _, a := range p.Nodes[i].Args {
			known := func(o program.Output) bool { return o.Value == a }
			if whole[a] && p.Node(a) != nil && !slices.ContainsFunc(numbers, known) {
				numbers = append(numbers, program.Output{Name: fmt.Sprint(NumberPrefix, len(numbers)), Value: a})
			}
		}
	}
	var d Division
	var err error
	if to := append(slices.Clone(numbers), outside...); len(to) > 0 {
		if d.Whole, err = p.Extract(p.Name+".whole", p.Arguments(), to); err != nil {
			return d, err
		}
	}
	if len(inside) > 0 {
		d.Rows, err = w.remainder(numbers, inside)
	}
	return d, err
}

// whole marks the values that have no part in every row but are computed from values that have.
func (w *writer) whole() []bool {
	inputs := make([]bool, len(w.p.Inputs))
	apart := func(t program.Type) bool {
		_, ok := w.layout(t)
		return !ok
	}
	reads := make([]bool, w.p.NumValues()) // rows
	for i, in := range w.p.Inputs {
		reads[i] = !apart(in.Type) && !w.isShared(program.ID(i))
	}
	return program.Interpret(w.p, inputs, func(id program.ID, n *program.Node, _ []bool) bool {
		for _, a := range n.Args {
			reads[id] = reads[id] || reads[a]
		}
		return reads[id] && apart(n.Type)
	})
}

// remainder is the second part, with the inputs that it needs.
func (w *writer) remainder(numbers, to []program.Output) (*program.Program, error) {
	from := append(w.p.Arguments(), numbers...)
	p, err := w.p.Extract(w.p.Name, from, to)
	if err != nil {
		return nil, err
	}
	needed := p.Needs(p.Outputs)
	var list []program.Output
	for _, a := range p.Arguments() {
		if needed[a.Value] {
			list = append(list, a)
		}
	}
	return p.Extract(w.p.Name, list, p.Outputs)
}
