package vectorize

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

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
	case info.Class == program.ClassBinary, info.Class == program.ClassCompare, n.Op == program.OpSelect:
		args = w.align(n, args)
	case n.Op == program.OpConcatenate, info.Class == program.ClassLinalg: // operands have their axes in common
		for i := range args {
			args[i].Value = w.spread(args[i])
		}
	case n.Op == program.OpDot:
		return w.dot(n, args[0], args[1])
	}
	return w.Apply(n.Op, w.attributes(n), w.over(n.Type), plain(args)...)
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
		a.Axes = slices.Concat([]int{0}, moved(a.Axes))
	case program.OpConcatenate, program.OpReduceSum, program.OpReduceMax, program.OpReduceMin:
		a.Axes = moved(a.Axes)
	}
	return a
}

// moved are axes behind a new first axis.
func moved(axes []int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = a + 1
	}
	return out
}

// align brings the operands of an elementwise operation to the rank of its result and
// one more. A shared scalar goes with anything.
func (w *writer) align(n *program.Node, args []value) []value {
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
			out[i].Value = v.Reshape(w.over(program.Type{Shape: shape}).Shape...)
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
		a.LhsBatch, a.RhsBatch = slices.Concat([]int{0}, moved(a.LhsBatch)), slices.Concat([]int{0}, moved(a.RhsBatch))
		a.LhsContract, a.RhsContract = moved(a.LhsContract), moved(a.RhsContract)
	case x.stacked:
		a.LhsBatch, a.LhsContract = moved(a.LhsBatch), moved(a.LhsContract)
		at = batch
	default:
		a.RhsBatch, a.RhsContract = moved(a.RhsBatch), moved(a.RhsContract)
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
				of[j] = w.take(a, i)
			}
		}
		one := program.Type{Shape: slices.Concat([]int{1}, n.Type.Shape)}
		copies[i] = w.Apply(n.Op, n.Attr, n.Type, of...).Reshape(one.Shape...)
	}
	return copies[0].Concatenate(0, copies[1:]...)
}

// take is the value of one copy.
func (w *writer) take(v value, i int) program.Value {
	limit := w.over(v.t).Shape
	start, stride := make([]int, len(limit)), slices.Repeat([]int{1}, len(limit))
	start[0], limit[0] = i, i+1
	return v.Slice(start, limit, stride).Reshape(v.t.Shape...)
}
