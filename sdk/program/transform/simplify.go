package transform

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// simplify returns a cheaper value that equals the node n, whose result has type t,
// bit for bit. The caller discards a value of another type.
func (w *Writer) simplify(n node, t program.Type) (program.Value, bool) {
	info, _ := n.op.Info()
	switch info.Class {
	case program.ClassUnary:
		inner := w.origin[n.args[0]] // −(−x) = x
		if (n.op == program.OpNeg || n.op == program.OpNot) && inner.op == n.op {
			return inner.args[0], true
		}
	case program.ClassBinary:
		if v, ok := w.simplifyBinary(n); ok {
			return v, true
		}
		return w.narrow(n, t)
	case program.ClassCompare:
		return w.narrow(n, t)
	case program.ClassElementwise:
		return w.simplifyElementwise(n, t)
	case program.ClassShape:
		return w.simplifyShape(n, t)
	case program.ClassLinear:
		if n.op == program.OpHadamard && n.attr.Block == 1 {
			return n.args[0], true
		}
	}
	return program.Value{}, false
}

func (w *Writer) simplifyBinary(n node) (program.Value, bool) {
	x, y := n.args[0], n.args[1]
	switch n.op {
	case program.OpAdd: // x + (−y) = x − y
		if v := w.origin[y]; v.op == program.OpNeg {
			return w.Binary(program.OpSub, x, v.args[0]), true
		}
		if v := w.origin[x]; v.op == program.OpNeg {
			return w.Binary(program.OpSub, y, v.args[0]), true
		}
	case program.OpSub: // x − (−y) = x + y, x − 0 = x
		if v := w.origin[y]; v.op == program.OpNeg {
			return w.Binary(program.OpAdd, x, v.args[0]), true
		}
		return x, w.is(y, 0)
	case program.OpMul:
		if w.is(x, 1) {
			return y, true
		}
		return x, w.is(y, 1)
	case program.OpDiv, program.OpPow:
		return x, w.is(y, 1)
	case program.OpMax, program.OpMin, program.OpAnd, program.OpOr:
		return x, x == y
	}
	return program.Value{}, false
}

// is reports whether v is a float constant c; −0 is not 0.
func (w *Writer) is(v program.Value, c float64) bool {
	got, ok := w.Constant(v)
	return ok && got == c && (c != 0 || 1/got > 0)
}

func (w *Writer) simplifyElementwise(n node, t program.Type) (program.Value, bool) {
	x := n.args[0]
	switch n.op {
	case program.OpClamp: // twice to the same bounds
		inner := w.origin[x]
		return x, inner.op == n.op && slices.Equal(inner.args[1:], n.args[1:])
	case program.OpSelect:
		a, b := n.args[1], n.args[2]
		if a == b && a.Type().Equal(t) {
			return a, true
		}
		if inner := w.origin[x]; inner.op == program.OpNot {
			return w.Apply(n.op, n.attr, program.Type{}, inner.args[0], b, a), true
		}
		return w.narrow(n, t)
	case program.OpConvert:
		return x, x.Type().DType == t.DType
	default: // bitcast; from float to float it rounds
		return x, x.Type().DType == t.DType && t.DType != program.Float
	}
}

// narrow replaces an operand that was broadcast, or filled, to the full shape by
// the smaller value it came from, if the result then still has type t.
func (w *Writer) narrow(n node, t program.Type) (program.Value, bool) {
	for i, a := range n.args {
		small, ok := w.unrepeated(a)
		if !ok {
			continue
		}
		args := slices.Clone(n.args)
		args[i] = small
		if v := w.Apply(n.op, n.attr, program.Type{}, args...); v.Type().Equal(t) {
			return v, true
		}
	}
	return program.Value{}, false
}

// unrepeated returns a smaller value that broadcasts to v by the elementwise rule.
func (w *Writer) unrepeated(v program.Value) (program.Value, bool) {
	n, t := w.origin[v], v.Type()
	if t.IsScalar() {
		return program.Value{}, false
	}
	switch {
	case n.op == program.OpConstant && len(n.attr.Floats)+len(n.attr.Ints) == 1:
		return w.Apply(n.op, n.attr, program.Type{DType: t.DType}), true
	case n.op == program.OpBroadcast:
		x := n.args[0]
		if x.Type().IsScalar() {
			return x, true
		}
		shape := slices.Repeat([]int{1}, t.Rank())
		for i, a := range n.attr.Axes {
			shape[a] = x.Shape()[i]
		}
		return w.reshape(x, shape), !slices.Equal(shape, t.Shape)
	}
	return program.Value{}, false
}

func (w *Writer) reshape(x program.Value, shape []int) program.Value {
	return w.Apply(program.OpReshape, program.Attr{}, program.Type{DType: x.Type().DType, Shape: shape}, x)
}

func (w *Writer) simplifyShape(n node, t program.Type) (program.Value, bool) {
	x := n.args[0]
	inner := w.origin[x]
	merge := inner.op == n.op
	switch n.op {
	case program.OpReshape:
		if x.Type().Equal(t) {
			return x, true
		}
		if merge {
			return w.reshape(inner.args[0], t.Shape), true
		}
	case program.OpTranspose:
		if slices.IsSorted(n.attr.Axes) {
			return x, true
		}
		if merge {
			return w.Apply(n.op, program.Attr{Axes: at(inner.attr.Axes, n.attr.Axes)}, program.Type{}, inner.args[0]), true
		}
	case program.OpBroadcast:
		if x.Type().Equal(t) {
			return x, true
		}
		if merge {
			return w.Apply(n.op, program.Attr{Axes: at(n.attr.Axes, inner.attr.Axes)}, t, inner.args[0]), true
		}
	case program.OpSlice:
		return x, x.Type().Equal(t)
	case program.OpConcatenate:
		return x, len(n.args) == 1
	}
	return program.Value{}, false
}

// at composes two lists of axes: values[index[0]], values[index[1]], …
func at(values, index []int) []int {
	out := make([]int, len(index))
	for i, j := range index {
		out[i] = values[j]
	}
	return out
}
