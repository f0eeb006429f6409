package vectorize

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Program returns p, which must be valid, vectorized over a leading axis of size n: every
// input except those named in shared has that axis, and every output has it. Slice i of
// the outputs is what p returns for slice i of the inputs and the shared inputs.
//
// Values that depend only on shared inputs are computed once. The elements of
// random_bits, and of clamp if the bounds are not shared, are computed one after the
// other, because these operations have no form over an axis. The error names a value that
// already has the largest number of axes, or says which argument is wrong.
func Program(p *program.Program, n int, shared ...string) (*program.Program, error) {
	if n < 1 {
		return nil, fmt.Errorf("vectorize program %q: %d copies: at least 1 is needed", p.Name, n)
	}
	for _, name := range shared {
		if p.Input(name) < 0 {
			return nil, fmt.Errorf("vectorize program %q: there is no input %q to be shared", p.Name, name)
		}
	}
	w := &writer{Builder: program.NewBuilder(p.Name), n: n}
	inputs, err := w.inputs(p, shared)
	if err != nil {
		return nil, err
	}
	values := program.Interpret(p, inputs, func(id program.ID, n *program.Node, args []value) (out value) {
		if err == nil {
			out, err = w.node(p, id, n, args)
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	for _, o := range p.Outputs {
		values[o.Value].Value, values[o.Value].stacked = w.spread(values[o.Value]), true
		w.Output(o.Name, values[o.Value].Value)
	}
	return w.Build()
}

// value is a value of the program that is rewritten: its type there and what stands
// for it. Unless it is stacked, all copies share it.
type value struct {
	program.Value
	t       program.Type
	stacked bool
}

// writer writes the program over n copies.
type writer struct {
	*program.Builder
	n int
}

func (w *writer) inputs(p *program.Program, shared []string) (values []value, err error) {
	for i, in := range p.Inputs {
		t, stacked := in.Type, !slices.Contains(shared, in.Name)
		if stacked {
			if err := room(p, program.ID(i)); err != nil {
				return nil, err
			}
			t = w.over(t)
		}
		values = append(values, value{w.Input(in.Name, t), in.Type, stacked})
	}
	return values, nil
}

// node rewrites the node that defines id. One without stacked operands is computed once
// for all copies.
func (w *writer) node(p *program.Program, id program.ID, n *program.Node, args []value) (value, error) {
	out := value{t: n.Type, stacked: slices.ContainsFunc(args, func(a value) bool { return a.stacked })}
	if out.stacked {
		if err := room(p, id); err != nil {
			return value{}, err
		}
		out.Value = w.rewrite(n, args)
	} else {
		out.Value = w.Apply(n.Op, n.Attr, n.Type, plain(args)...)
	}
	if err := w.Err(); err != nil {
		return value{}, fmt.Errorf("vectorize %%%d = %s: %w", id, n.Op, err)
	}
	return out, nil
}

// room fails when a value has no axis left.
func room(p *program.Program, id program.ID) error {
	t := p.TypeOf(id)
	if t.Rank() < program.MaxRank {
		return nil
	}
	place := fmt.Sprintf("%%%d", id)
	if n := p.Node(id); n != nil {
		place += " = " + n.Op.String()
	}
	return fmt.Errorf("vectorize program %q: %s has the type %s: with one more axis it would have more than %d", p.Name, place, t, program.MaxRank)
}

// over is the type of a value of type t for all copies.
func (w *writer) over(t program.Type) program.Type {
	return program.Type{DType: t.DType, Shape: slices.Concat([]int{w.n}, t.Shape)}
}

// spread repeats a shared value for all copies.
func (w *writer) spread(v value) program.Value {
	if v.stacked {
		return v.Value
	}
	axes := make([]int, v.t.Rank())
	for i := range axes {
		axes[i] = i + 1
	}
	return v.Broadcast(w.over(v.t).Shape, axes)
}

func plain(args []value) []program.Value {
	out := make([]program.Value, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}
