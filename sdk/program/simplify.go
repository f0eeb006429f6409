package program

import (
	"crypto/sha256"
	wire "encoding/binary"
	"fmt"
	"slices"
)

// NewSimplifier starts an empty program like [NewBuilder]. The builder returned simplifies as it
// goes: equal operations are merged, and identity operations are dropped, so that the results have
// the same bits. Only exact identities are used: x·1 is x and x − 0 is x, but x + 0 is not x
// when x is −0, and folding products of constants would round differently. It is for hosts: sizes
// have no limits.
func NewSimplifier(name string) *Builder {
	b := NewBuilder(name)
	b.seen = map[string]Value{}
	return b
}

// Constant returns the value of all elements of v if v is a float constant with one stored element;
// otherwise ok is false.
func (v Value) Constant() (c float64, ok bool) {
	n := v.node()
	if n.Op != OpConstant || len(n.Attr.Floats) != 1 {
		return 0, false
	}
	return n.Attr.Floats[0], true
}

// node returns the node that defines v; for an input, a node without an operation.
func (v Value) node() Node {
	if n := v.Builder().p.Node(v.id); n != nil {
		return *n
	}
	return Node{}
}

func (v Value) operand(i int) Value { return Value{v.b, v.node().Args[i]} }

// key returns a string that two nodes share only if they compute the same value.
func key(op Op, attr Attr, t Type, args []ID) string {
	operands := make([]int, len(args))
	for i, a := range args {
		operands[i] = int(a)
	}
	switch op {
	case OpAdd, OpMul, OpAnd, OpOr, OpXor, OpEq, OpNe:
		slices.Sort(operands)
	}
	// Only a part of the stated type does not follow from the operands.
	switch {
	case rows[op] != nil && rows[op].Class == ClassSource:
	case op == OpConvert || op == OpBitcast:
		t = Type{DType: t.DType}
	case op == OpReshape || op == OpBroadcast || op == OpScatterAdd:
		t = Type{Shape: t.Shape}
	default:
		t = Type{}
	}
	data := digest(attr)
	text := wire.AppendVarint(data[:], int64(op))
	text = wire.AppendVarint(text, int64(t.DType))
	text = wire.AppendVarint(text, int64(attr.Block))
	text = wire.AppendVarint(text, int64(attr.Output))
	for _, list := range [][]int{operands, t.Shape, attr.Axes, attr.Start, attr.Limit, attr.Stride,
		attr.LhsContract, attr.RhsContract, attr.LhsBatch, attr.RhsBatch} {
		text = wire.AppendVarint(text, int64(len(list)))
		for _, n := range list {
			text = wire.AppendVarint(text, int64(n))
		}
	}
	if attr.Call != nil {
		text = fmt.Appendf(text, "%p", attr.Call)
	}
	return string(text)
}

// digest returns a digest of the numbers of a constant; zero if there are none. Two constants with
// many floats, such as tables of a model's positions, are equal only if they share memory: the
// program keeps that memory, and nobody changes it.
func digest(attr Attr) (data [sha256.Size]byte) {
	const large = 1 << 12
	h := sha256.New()
	switch {
	case len(attr.Floats)+len(attr.Ints) == 0:
		return data
	case len(attr.Floats) >= large && len(attr.Ints) == 0:
		_, _ = fmt.Fprintf(h, "%p %d", attr.Floats, len(attr.Floats))
	default: // writing slices of numbers to a hash cannot fail
		_ = wire.Write(h, wire.LittleEndian, attr.Floats)
		_ = wire.Write(h, wire.LittleEndian, attr.Ints)
	}
	h.Sum(data[:0])
	return data
}

// simplify returns a cheaper value that equals, bit for bit, the result of a node of type t with
// the given operands. The caller discards a value of another type.
func (b *Builder) simplify(n Node, t Type, args []Value) (Value, bool) {
	switch rows[n.Op].Class {
	case ClassUnary: // −(−x) = x
		if (n.Op == OpNeg || n.Op == OpNot) && args[0].node().Op == n.Op {
			return args[0].operand(0), true
		}
	case ClassBinary:
		if v, ok := simplifyBinary(n.Op, args[0], args[1]); ok {
			return v, true
		}
		return b.narrow(n, t, args)
	case ClassCompare:
		return b.narrow(n, t, args)
	case ClassElementwise:
		return b.simplifyElementwise(n, t, args)
	case ClassShape:
		return b.simplifyShape(n, t, args)
	case ClassLinear:
		return args[0], n.Op == OpHadamard && n.Attr.Block == 1
	}
	return Value{}, false
}

func simplifyBinary(op Op, x, y Value) (Value, bool) {
	switch op {
	case OpAdd: // x + (−y) = x − y
		if y.node().Op == OpNeg {
			return x.Sub(y.operand(0)), true
		}
		if x.node().Op == OpNeg {
			return y.Sub(x.operand(0)), true
		}
	case OpSub: // x − (−y) = x + y, x − 0 = x
		if y.node().Op == OpNeg {
			return x.Add(y.operand(0)), true
		}
		return x, y.is(0)
	case OpMul:
		if x.is(1) {
			return y, true
		}
		return x, y.is(1)
	case OpDiv, OpPow:
		return x, y.is(1)
	case OpMax, OpMin, OpAnd, OpOr:
		return x, x == y
	}
	return Value{}, false
}

// is reports whether v is a float constant c; −0 is not 0.
func (v Value) is(c float64) bool {
	got, ok := v.Constant()
	return ok && got == c && (c != 0 || 1/got > 0)
}

func (b *Builder) simplifyElementwise(n Node, t Type, args []Value) (Value, bool) {
	x := args[0]
	switch n.Op {
	case OpClamp: // twice to the same bounds
		return x, x.node().Op == OpClamp && slices.Equal(x.node().Args[1:], n.Args[1:])
	case OpSelect:
		if args[1] == args[2] && args[1].Type().Equal(t) {
			return args[1], true
		}
		if x.node().Op == OpNot {
			return x.operand(0).Select(args[2], args[1]), true
		}
		return b.narrow(n, t, args)
	case OpConvert:
		return x, x.Type().DType == t.DType
	default: // bitcast; from float to float it rounds
		return x, x.Type().DType == t.DType && t.DType != Float
	}
}

// narrow replaces an operand that was broadcast, or filled, to the full shape by
// the smaller value it came from, if the result then still has type t.
func (b *Builder) narrow(n Node, t Type, args []Value) (Value, bool) {
	for i, a := range args {
		small, ok := a.unrepeated()
		if !ok {
			continue
		}
		args := slices.Clone(args)
		args[i] = small
		if v := b.Apply(n.Op, n.Attr, Type{}, args...); v.Type().Equal(t) {
			return v, true
		}
	}
	return Value{}, false
}

// unrepeated returns a smaller value that broadcasts to v by the elementwise rule.
func (v Value) unrepeated() (Value, bool) {
	n, t := v.node(), v.Type()
	switch {
	case t.IsScalar():
	case n.Op == OpConstant && len(n.Attr.Floats)+len(n.Attr.Ints) == 1:
		return v.b.Apply(n.Op, n.Attr, Type{DType: t.DType}), true
	case n.Op == OpBroadcast:
		x := v.operand(0)
		if x.Type().IsScalar() {
			return x, true
		}
		shape := slices.Repeat([]int{1}, t.Rank())
		for i, a := range n.Attr.Axes {
			shape[a] = x.Shape()[i]
		}
		return x.Reshape(shape...), !slices.Equal(shape, t.Shape)
	}
	return Value{}, false
}

func (b *Builder) simplifyShape(n Node, t Type, args []Value) (Value, bool) {
	x := args[0]
	inner := x.node()
	merge := inner.Op == n.Op
	switch n.Op {
	case OpReshape:
		if !x.Type().Equal(t) && merge {
			return x.operand(0).Reshape(t.Shape...), true
		}
		return x, x.Type().Equal(t)
	case OpTranspose:
		if !slices.IsSorted(n.Attr.Axes) && merge {
			return x.operand(0).Transpose(at(inner.Attr.Axes, n.Attr.Axes)...), true
		}
		return x, slices.IsSorted(n.Attr.Axes)
	case OpBroadcast:
		if !x.Type().Equal(t) && merge {
			axes := Attr{Axes: at(n.Attr.Axes, inner.Attr.Axes)}
			return b.Apply(n.Op, axes, t, x.operand(0)), true
		}
		return x, x.Type().Equal(t)
	case OpSlice:
		return x, x.Type().Equal(t)
	case OpConcatenate:
		return x, len(args) == 1
	}
	return Value{}, false
}

// at composes two lists of axes: values[index[0]], values[index[1]], …
func at(values, index []int) []int {
	out := make([]int, len(index))
	for i, j := range index {
		out[i] = values[j]
	}
	return out
}
