package program

import (
	"errors"
	"slices"
)

// gradient is the differentiation rule of an operation.
type gradient struct {
	text     string // as in [OpInfo]
	rule     gradientRule
	operands []int // the operands that have a gradient; nil means all
}

// A gradientRule returns the cotangents of the operands x of a node, given the result y and its
// cotangent dy. A cotangent may have the shape of the result although its operand was broadcast,
// and is absent if the operand has no gradient.
type gradientRule func(n *Node, x []Value, y, dy Value) []Value

var (
	zero    = gradient{text: "zero"} // of piecewise constant operations
	refused = gradient{text: "an error"}
)

// ofX returns the gradient of y = op(x); dx returns the cotangent of x.
func ofX(text string, dx func(x, y, dy Value) Value) gradient {
	return gradient{text: text, rule: func(_ *Node, x []Value, y, dy Value) []Value {
		return []Value{dx(x[0], y, dy)}
	}}
}

// ofXY returns the gradient of z = op(x, y); d returns the cotangents of x and y.
func ofXY(text string, d func(x, y, z, dz Value) (dx, dy Value)) gradient {
	return gradient{text: text, rule: func(_ *Node, x []Value, z, dz Value) []Value {
		dx, dy := d(x[0], x[1], z, dz)
		return []Value{dx, dy}
	}}
}

// HasGradient reports whether a gradient passes from the result of op to the given operand. For
// operations that cannot be differentiated it is true, and [Node.Cotangents] fails.
func (op Op) HasGradient(operand int) bool {
	g := rows[op].gradient
	return g.text != zero.text && (g.operands == nil || slices.Contains(g.operands, operand))
}

// Cotangents returns the cotangents of the operands x of the node, given its result y and the
// cotangent dy of y. They are absent (zero Values) for operands without a gradient.
func (n *Node) Cotangents(x []Value, y, dy Value) ([]Value, error) {
	rule := rows[n.Op].gradient.rule
	if rule == nil {
		return nil, errors.New("a matrix factorization has no gradient: put stop_gradient around it")
	}
	d := rule(n, x, y, dy)
	for i, v := range d {
		if v.Valid() {
			d[i] = v.unrepeat(x[i].Type())
		}
	}
	return d, nil
}

// unrepeat reverses the implicit broadcast of an elementwise operand of type want:
// it sums v over the axes that the operand lacks or has with size 1.
func (v Value) unrepeat(want Type) Value {
	shape := v.Shape()
	if slices.Equal(shape, want.Shape) {
		return v
	}
	var axes []int
	for i, d := range shape {
		if want.IsScalar() || want.Shape[i] != d {
			axes = append(axes, i)
		}
	}
	return v.sumOver(axes).Reshape(want.Shape...)
}

// unreduce broadcasts v along the axes of x that a reduction has removed.
func (v Value) unreduce(x Value, axes []int) Value {
	shape := x.Shape()
	return v.Broadcast(shape, OtherAxes(len(shape), axes))
}

func (v Value) sumOver(axes []int) Value {
	if len(axes) == 0 {
		return v
	}
	return v.ReduceSum(axes...)
}

// where selects v where beats is true, v/2 where a equals b, and zero elsewhere.
func (v Value) where(beats, a, b Value) Value {
	return beats.Select(v, a.Eq(b).Select(v.Scale(0.5), v.b.Const(0)))
}

// divisorGradient returns −dz·x/y² for z = x/y, without forming y², which would overflow or
// underflow binary32 long before the quotient does. If y was broadcast, the divisions by y are
// moved out of the sum.
func divisorGradient(x, y, z, dz Value) Value {
	if y.Type().Equal(z.Type()) {
		return dz.Div(y).Mul(z).Neg()
	}
	return dz.Mul(x).unrepeat(y.Type()).Div(y).Div(y).Neg()
}

// lowerPower returns x^(y−1); for a constant scalar y the exponent is folded.
func lowerPower(x, y Value) Value {
	exponent := y.Sub(y.b.Const(1))
	if c, ok := y.Constant(); ok && y.Type().IsScalar() {
		exponent = y.b.Const(c - 1)
	}
	return x.Pow(exponent)
}

// extremeGradient distributes dy equally over the elements that equal the extremum.
func extremeGradient(n *Node, x []Value, y, dy Value) []Value {
	axes := n.Attr.Axes
	found := x[0].Eq(y.unreduce(x[0], axes))
	count := found.Convert(Float).ReduceSum(axes...)
	return []Value{found.Select(dy.Div(count).unreduce(x[0], axes), y.b.Const(0))}
}

func broadcastGradient(n *Node, x []Value, _, dy Value) []Value {
	shape, axes := x[0].Shape(), OtherAxes(n.Type.Rank(), n.Attr.Axes)
	for i, a := range n.Attr.Axes {
		if shape[i] != n.Type.Shape[a] {
			axes = append(axes, a)
		}
	}
	slices.Sort(axes)
	return []Value{dy.sumOver(axes).Reshape(shape...)}
}

// sliceGradient scatters dy into zeros of the shape of the operand: index i of each axis goes to
// start + i·stride.
func sliceGradient(n *Node, x []Value, _, dy Value) []Value {
	for axis, size := range x[0].Shape() {
		start := n.Attr.Start[axis]
		dy = dy.insertZeros(axis, n.Attr.Stride[axis])
		covered := dy.Shape()[axis]
		if end := start + covered; end > size { // zeros behind the last element
			covered = size - start
			dy = dy.At(axis, 0, covered)
		}
		dy = dy.pad(axis, start, size-start-covered)
	}
	return []Value{dy}
}

func (v Value) insertZeros(axis, stride int) Value {
	shape := v.Shape()
	if stride == 1 || shape[axis] == 1 {
		return v
	}
	inner := int(Type{Shape: shape[axis+1:]}.Size())
	outer := int(v.Type().Size()) / inner
	v = v.Reshape(outer, 1, inner).pad(1, 0, stride-1)
	shape[axis] *= stride
	return v.Reshape(shape...)
}

func (v Value) pad(axis, before, after int) Value {
	zeros := func(n int) []Value {
		if n == 0 {
			return nil
		}
		shape := v.Shape()
		shape[axis] = n
		return []Value{v.b.Zeros(shape...)}
	}
	parts := slices.Concat(zeros(before), []Value{v}, zeros(after))
	return parts[0].Concatenate(axis, parts[1:]...)
}

func concatenateGradient(n *Node, x []Value, _, dy Value) []Value {
	axis, start := n.Attr.Axes[0], 0
	d := make([]Value, len(x))
	for i, v := range x {
		limit := start + v.Shape()[axis]
		d[i] = dy.At(axis, start, limit)
		start = limit
	}
	return d
}

func dotGradient(n *Node, x []Value, _, dy Value) []Value {
	a := n.Attr
	left := OtherAxes(x[0].Type().Rank(), a.LhsBatch, a.LhsContract)
	right := OtherAxes(x[1].Type().Rank(), a.RhsBatch, a.RhsContract)
	batch := len(a.LhsBatch)
	return []Value{
		factorGradient(dy, batch+len(left),
			factor{a.LhsBatch, left, a.LhsContract}, x[1], factor{a.RhsBatch, right, a.RhsContract}),
		factorGradient(dy, batch,
			factor{a.RhsBatch, right, a.RhsContract}, x[0], factor{a.LhsBatch, left, a.LhsContract}),
	}
}

type factor struct{ batch, free, contract []int }

// factorGradient returns the cotangent of an operand of a dot: the product of dy and the other
// operand. dy has the batch axes first, then the free axes of the left operand, then those of the
// right; first is the axis of dy at which the free axes of the other operand begin. If one order of
// the factors gives the operand's order of axes, it is used; otherwise the product is transposed.
func factorGradient(dy Value, first int, own factor, other Value, o factor) Value {
	batch, contract := count(0, len(o.batch)), count(first, len(o.free))
	// The product has the contracted axes of other in their order there; matched lists the axes of
	// the operand that each of them was contracted with.
	var matched []int
	for _, axis := range slices.Sorted(slices.Values(o.contract)) {
		matched = append(matched, own.contract[slices.Index(o.contract, axis)])
	}
	// Axis i of the product is the operand's axis layout[i].
	if layout := slices.Concat(own.batch, matched, own.free); slices.IsSorted(layout) {
		return other.Dot(dy, [2][]int{o.free, contract}, [2][]int{o.batch, batch})
	}
	product := dy.Dot(other, [2][]int{contract, o.free}, [2][]int{batch, o.batch})
	return product.Transpose(inverse(slices.Concat(own.batch, own.free, matched))...)
}

// count returns first, first+1, …, first+n−1.
func count(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

func inverse(perm []int) []int {
	out := make([]int, len(perm))
	for i, a := range perm {
		out[a] = i
	}
	return out
}
