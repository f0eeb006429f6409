// Package vectorize rewrites a program into one that does the same for many inputs at
// once: every value gets a leading axis, along which the inputs are stacked, as with vmap
// in JAX.
//
// It is for hosts: update programs of parameters with equal shapes that are the same
// become one program, with a few large products in place of many small ones. Only the
// rewriting from program to program belongs here; the caller decides which programs to
// combine, and whether that is faster on a device.
package vectorize

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
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
	values := transform.Interpret(p, inputs, func(id program.ID, n *program.Node, args []value) (out value) {
		if err == nil {
			out, err = w.node(p, id, n, args)
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	for _, o := range p.Outputs {
		values[o.Value].Value, values[o.Value].stacked = w.repeatShared(values[o.Value]), true
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
			if err := checkRank(p, program.ID(i)); err != nil {
				return nil, err
			}
			t = w.batched(t)
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
		if err := checkRank(p, id); err != nil {
			return value{}, err
		}
		out.Value = w.rewrite(n, args)
	} else {
		out.Value = w.Apply(n.Op, n.Attr, n.Type, valuesOf(args)...)
	}
	if err := w.Err(); err != nil {
		return value{}, fmt.Errorf("vectorize %%%d = %s: %w", id, n.Op, err)
	}
	return out, nil
}

// checkRank fails when a value has no axis left.
func checkRank(p *program.Program, id program.ID) error {
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

// batched is the type of a value of type t for all copies.
func (w *writer) batched(t program.Type) program.Type {
	return program.Type{DType: t.DType, Shape: slices.Concat([]int{w.n}, t.Shape)}
}

// repeatShared repeats a shared value for all copies.
func (w *writer) repeatShared(v value) program.Value {
	if v.stacked {
		return v.Value
	}
	axes := make([]int, v.t.Rank())
	for i := range axes {
		axes[i] = i + 1
	}
	return v.Broadcast(w.batched(v.t).Shape, axes)
}

func valuesOf(args []value) []program.Value {
	out := make([]program.Value, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}

// rewrite is a node of the original program for all copies; at least one of its
// operands is stacked.
func (w *writer) rewrite(n *program.Node, args []value) program.Value {
	info, _ := n.Op.Info()
	switch {
	case n.Op == program.OpRandomBits:
		return w.unroll(n, args)
	case n.Op == program.OpClamp:
		if args[1].stacked || args[2].stacked { // a bound must be a scalar
			return w.unroll(n, args)
		}
	case n.Op == program.OpTopK, n.Op == program.OpOrderStatistic, n.Op == program.OpNearest, n.Op == program.OpLookup:
		if args[1].stacked { // k is one number, and a table one table
			return w.unroll(n, args)
		}
	case n.Op == program.OpScatterAdd: // the sums of the copies are tables of their own
		return w.unroll(n, args)
	case info.Class == program.ClassBinary, info.Class == program.ClassCompare, n.Op == program.OpSelect:
		args = w.alignOperands(n, args)
	case n.Op == program.OpConcatenate, info.Class == program.ClassLinalg: // operands have their axes in common
		for i := range args {
			args[i].Value = w.repeatShared(args[i])
		}
	case n.Op == program.OpDot:
		return w.dot(n, args[0], args[1])
	}
	return w.Apply(n.Op, w.attributes(n), w.batched(n.Type), valuesOf(args)...)
}

// attributes are those of a node with one operand, or with operands that are all
// stacked, with their axes behind a new first one. Operations that are not named have no axes among their attributes, or count
// them from the last.
func (w *writer) attributes(n *program.Node) program.Attr {
	a := n.Attr
	switch n.Op {
	case program.OpSlice:
		a.Start, a.Limit, a.Stride = slices.Concat([]int{0}, a.Start), slices.Concat([]int{w.n}, a.Limit), slices.Concat([]int{1}, a.Stride)
	case program.OpTranspose, program.OpBroadcast:
		a.Axes = slices.Concat([]int{0}, shiftAxes(a.Axes))
	case program.OpConcatenate, program.OpReduceSum, program.OpReduceMax, program.OpReduceMin:
		a.Axes = shiftAxes(a.Axes)
	}
	return a
}

// shiftAxes are axes behind a new first axis.
func shiftAxes(axes []int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = a + 1
	}
	return out
}

// alignOperands brings the operands of an elementwise operation to the rank of its result and
// one more. A shared scalar goes with anything.
func (w *writer) alignOperands(n *program.Node, args []value) []value {
	out := slices.Clone(args)
	for i, v := range args {
		if v.t.IsScalar() && (!v.stacked || n.Type.IsScalar()) {
			continue
		}
		shape := v.t.Shape
		if v.t.IsScalar() {
			shape = slices.Repeat([]int{1}, n.Type.Rank())
		}
		switch {
		case !v.stacked:
			out[i].Value = v.Reshape(slices.Concat([]int{1}, shape)...)
		case v.t.IsScalar():
			out[i].Value = v.Reshape(w.batched(program.Type{Shape: shape}).Shape...)
		}
	}
	return out
}

// dot keeps the copies in step where both operands are stacked. Where one is, its new
// axis is a further one of that operand, and the product remains a single one.
func (w *writer) dot(n *program.Node, x, y value) program.Value {
	a := n.Attr
	batch := len(a.LhsBatch)
	at := 0 // of the copies in the product
	switch {
	case x.stacked && y.stacked:
		a.LhsBatch, a.RhsBatch = slices.Concat([]int{0}, shiftAxes(a.LhsBatch)), slices.Concat([]int{0}, shiftAxes(a.RhsBatch))
		a.LhsContract, a.RhsContract = shiftAxes(a.LhsContract), shiftAxes(a.RhsContract)
	case x.stacked:
		a.LhsBatch, a.LhsContract = shiftAxes(a.LhsBatch), shiftAxes(a.LhsContract)
		at = batch
	default:
		a.RhsBatch, a.RhsContract = shiftAxes(a.RhsBatch), shiftAxes(a.RhsContract)
		at = x.t.Rank() - len(a.LhsContract) // batch axes and the rest of the left operand
	}
	out := w.Apply(n.Op, a, program.Type{}, x.Value, y.Value)
	if at == 0 {
		return out
	}
	axes := []int{at}
	for i := range n.Type.Rank() + 1 {
		if i != at {
			axes = append(axes, i)
		}
	}
	return out.Transpose(axes...)
}

// unroll applies an operation that has no form over an axis to each copy.
func (w *writer) unroll(n *program.Node, args []value) program.Value {
	copies := make([]program.Value, w.n)
	for i := range copies {
		of := make([]program.Value, len(args))
		for j, a := range args {
			of[j] = a.Value
			if a.stacked {
				of[j] = w.copyAt(a, i)
			}
		}
		one := program.Type{Shape: slices.Concat([]int{1}, n.Type.Shape)}
		copies[i] = w.Apply(n.Op, n.Attr, n.Type, of...).Reshape(one.Shape...)
	}
	return copies[0].Concatenate(0, copies[1:]...)
}

// copyAt is the value of one copy.
func (w *writer) copyAt(v value, i int) program.Value {
	limit := w.batched(v.t).Shape
	start, stride := make([]int, len(limit)), slices.Repeat([]int{1}, len(limit))
	start[0], limit[0] = i, i+1
	return v.Slice(start, limit, stride).Reshape(v.t.Shape...)
}
