package autodiff

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// An adjoint propagates the cotangent dy of a node's result to its operands.
type adjoint func(t *tape, n *program.Node, id program.ID, dy program.Value)

// A rule is the differentiation rule of an operation. The zero rule is for operations whose
// gradient is zero.
type rule struct {
	adjoint adjoint
	to      []int  // the operands that have a gradient; nil means all
	refused string // if not empty, the operation cannot be differentiated, for this reason
}

var (
	zero    = rule{}
	refused = rule{refused: "a matrix factorization has no gradient: put stop_gradient around it"}
)

// rules has the rule of every operation, as in the column Gradient of the operation table.
var rules = map[program.Op]rule{
	program.OpConstant: zero, program.OpIota: zero, program.OpRandomBits: zero,

	program.OpNeg: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value { return t.neg(dy) }),
	program.OpAbs: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.mul(dy, t.w.Unary(program.OpSign, x))
	}),
	program.OpSign: zero,
	program.OpSqrt: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.div(t.mul(dy, t.w.Const(0.5)), y)
	}),
	program.OpExp: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value { return t.mul(dy, y) }),
	program.OpExpm1: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.mul(dy, t.w.Unary(program.OpExp, x))
	}),
	program.OpLog: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value { return t.div(dy, x) }),
	program.OpLog1p: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.div(dy, t.w.Binary(program.OpAdd, x, t.w.Const(1)))
	}),
	program.OpTanh: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.mul(dy, t.w.Binary(program.OpSub, t.w.Const(1), t.mul(y, y)))
	}),
	program.OpFloor: zero, program.OpRound: zero, program.OpLogb: zero, program.OpIsFinite: zero, program.OpNot: zero,

	program.OpAdd: binary(cotangent, cotangent),
	program.OpSub: {adjoint: (*tape).difference},
	program.OpMul: binary(
		func(t *tape, x, y, z, dz program.Value) program.Value { return t.mul(dz, y) },
		func(t *tape, x, y, z, dz program.Value) program.Value { return t.mul(dz, x) }),
	program.OpDiv: {adjoint: (*tape).quotient},
	program.OpPow: binary(
		func(t *tape, x, y, z, dz program.Value) program.Value { return t.mul(dz, t.mul(y, t.lowerPower(x, y))) },
		func(t *tape, x, y, z, dz program.Value) program.Value {
			return t.mul(dz, t.mul(z, t.w.Unary(program.OpLog, x)))
		}),
	program.OpMax:   extreme(program.OpGt),
	program.OpMin:   extreme(program.OpLt),
	program.OpLdexp: {adjoint: (*tape).ldexp, to: []int{0}},
	program.OpAnd:   zero, program.OpOr: zero, program.OpXor: zero, program.OpShl: zero, program.OpShr: zero,
	program.OpClamp: first(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		// Within the bounds, and only there, y equals x; NaN equals nothing.
		zero := t.w.Const(0)
		return t.pick(t.w.Binary(program.OpEq, x, y), dy, zero)
	}),

	program.OpEq: zero, program.OpNe: zero, program.OpLt: zero, program.OpLe: zero, program.OpGt: zero, program.OpGe: zero,

	program.OpSelect: {adjoint: (*tape).selection, to: []int{1, 2}},
	program.OpConvert: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return dy // from float to float
	}),
	program.OpBitcast: zero,

	program.OpReshape: unary(func(t *tape, _ *program.Node, x, y, dy program.Value) program.Value {
		return t.reshape(dy, x.Shape())
	}),
	program.OpTranspose: unary(func(t *tape, n *program.Node, x, y, dy program.Value) program.Value {
		return t.transpose(dy, inverse(n.Attr.Axes))
	}),
	program.OpBroadcast:   unary((*tape).broadcasted),
	program.OpSlice:       unary((*tape).unslice),
	program.OpConcatenate: {adjoint: (*tape).concatenated},

	program.OpReduceSum: unary(func(t *tape, n *program.Node, x, y, dy program.Value) program.Value {
		return t.unreduce(dy, x, n.Attr.Axes)
	}),
	program.OpReduceMax: unary((*tape).reduceExtreme),
	program.OpReduceMin: unary((*tape).reduceExtreme),

	program.OpDot: {adjoint: (*tape).product},
	program.OpHadamard: unary(func(t *tape, n *program.Node, x, y, dy program.Value) program.Value {
		return t.w.Apply(program.OpHadamard, n.Attr, program.Type{}, dy)
	}),

	program.OpStopGradient: zero,

	program.OpQR: refused, program.OpEighValues: refused, program.OpEighVectors: refused, program.OpSortColumns: refused,

	program.OpNearest:    zero,
	program.OpLookup:     {adjoint: (*tape).lookup, to: []int{1}},
	program.OpScatterAdd: {adjoint: (*tape).scatterAdd, to: []int{1}},
	program.OpTopK:       zero,
	program.OpOrderStatistic: first(func(t *tape, n *program.Node, x, y, dy program.Value) program.Value {
		// Minimum and maximum are order statistics, too, so this is the same rule.
		fold := *n
		fold.Attr.Axes = []int{x.Type().Rank() - 1}
		return t.reduceExtreme(&fold, x, y, dy)
	}),
}

// unary returns the rule of y = op(x); f returns the cotangent of x.
func unary(f func(t *tape, n *program.Node, x, y, dy program.Value) program.Value) rule {
	return rule{adjoint: func(t *tape, n *program.Node, id program.ID, dy program.Value) {
		t.add(n.Args[0], f(t, n, t.values[n.Args[0]], t.values[id], dy))
	}}
}

// first returns the rule of y = op(x, …) where only x has a gradient.
func first(f func(t *tape, n *program.Node, x, y, dy program.Value) program.Value) rule {
	r := unary(f)
	r.to = []int{0}
	return r
}

// binary returns the rule of z = op(x, y); toX and toY return the cotangents of x and y before they
// are summed over broadcast axes.
func binary(toX, toY func(t *tape, x, y, z, dz program.Value) program.Value) rule {
	return rule{adjoint: func(t *tape, n *program.Node, id program.ID, dz program.Value) {
		x, y, z := t.values[n.Args[0]], t.values[n.Args[1]], t.values[id]
		t.addSum(n.Args[0], toX(t, x, y, z, dz))
		t.addSum(n.Args[1], toY(t, x, y, z, dz))
	}}
}

func cotangent(_ *tape, _, _, _, dz program.Value) program.Value { return dz }

func (t *tape) difference(n *program.Node, _ program.ID, dy program.Value) {
	t.addSum(n.Args[0], dy)
	t.add(n.Args[1], t.neg(t.unrepeat(dy, t.values[n.Args[1]].Type())))
}

func (t *tape) quotient(n *program.Node, id program.ID, dy program.Value) {
	x, y := t.values[n.Args[0]], t.values[n.Args[1]]
	t.addSum(n.Args[0], t.div(dy, y))
	t.divisor(n.Args[1], x, y, t.values[id], dy)
}

// divisor adds −dy·x/y² for q = x/y, without forming y², which would overflow or
// underflow binary32 long before the quotient does. If y was broadcast, its factors
// are moved out of the sum.
func (t *tape) divisor(id program.ID, x, y, q, dy program.Value) {
	if y.Type().Equal(q.Type()) {
		t.addSum(id, t.neg(t.mul(t.div(dy, y), q)))
		return
	}
	sum := t.unrepeat(t.mul(dy, x), y.Type())
	t.add(id, t.neg(t.div(t.div(sum, y), y)))
}

// lowerPower returns x^(y−1); for a constant scalar y the exponent is folded.
func (t *tape) lowerPower(x, y program.Value) program.Value {
	exponent := t.w.Binary(program.OpSub, y, t.w.Const(1))
	if c, ok := t.w.Constant(y); ok && y.Type().IsScalar() {
		exponent = t.w.Const(c - 1)
	}
	return t.w.Binary(program.OpPow, x, exponent)
}

func extreme(beats program.Op) rule {
	return binary(
		func(t *tape, x, y, z, dz program.Value) program.Value { return t.winner(beats, x, y, dz) },
		func(t *tape, x, y, z, dz program.Value) program.Value { return t.winner(beats, y, x, dz) })
}

// winner returns dy where a beats b, dy/2 where they are equal, and zero elsewhere.
func (t *tape) winner(beats program.Op, a, b, dy program.Value) program.Value {
	tie := t.pick(t.w.Binary(program.OpEq, a, b), t.mul(dy, t.w.Const(0.5)), t.w.Const(0))
	return t.pick(t.w.Binary(beats, a, b), dy, tie)
}

func (t *tape) ldexp(n *program.Node, _ program.ID, dy program.Value) {
	t.addSum(n.Args[0], t.w.Binary(program.OpLdexp, dy, t.values[n.Args[1]]))
}

func (t *tape) selection(n *program.Node, _ program.ID, dy program.Value) {
	condition, zero := t.values[n.Args[0]], t.w.Const(0)
	t.addSum(n.Args[1], t.pick(condition, dy, zero))
	t.addSum(n.Args[2], t.pick(condition, zero, dy))
}

// reduceExtreme distributes dy equally over the elements that equal the extremum.
func (t *tape) reduceExtreme(n *program.Node, x, y, dy program.Value) program.Value {
	found := t.w.Binary(program.OpEq, x, t.unreduce(y, x, n.Attr.Axes))
	ones := t.w.Apply(program.OpConvert, program.Attr{}, program.FloatType(), found)
	count := t.w.Apply(program.OpReduceSum, n.Attr, program.Type{}, ones)
	return t.pick(found, t.unreduce(t.div(dy, count), x, n.Attr.Axes), t.w.Const(0))
}

func (t *tape) lookup(n *program.Node, _ program.ID, dy program.Value) {
	table := t.p.TypeOf(n.Args[1])
	t.add(n.Args[1], t.w.Apply(program.OpScatterAdd, program.Attr{}, table, t.values[n.Args[0]], dy))
}

func (t *tape) scatterAdd(n *program.Node, _ program.ID, dy program.Value) {
	t.add(n.Args[1], t.w.Apply(program.OpLookup, program.Attr{}, program.Type{}, t.values[n.Args[0]], dy))
}

// unreduce broadcasts a value along the axes of x that a reduction has removed.
func (t *tape) unreduce(v, x program.Value, axes []int) program.Value {
	attr := program.Attr{Axes: program.OtherAxes(x.Type().Rank(), axes)}
	return t.w.Apply(program.OpBroadcast, attr, program.FloatType(x.Shape()...), v)
}

// addSum adds the cotangent of an elementwise operand, summed over the axes along
// which the operand was broadcast.
func (t *tape) addSum(id program.ID, d program.Value) {
	t.add(id, t.unrepeat(d, t.p.TypeOf(id)))
}

func (t *tape) neg(x program.Value) program.Value    { return t.w.Unary(program.OpNeg, x) }
func (t *tape) mul(x, y program.Value) program.Value { return t.w.Binary(program.OpMul, x, y) }
func (t *tape) div(x, y program.Value) program.Value { return t.w.Binary(program.OpDiv, x, y) }

func (t *tape) pick(cond, x, y program.Value) program.Value {
	return t.w.Apply(program.OpSelect, program.Attr{}, program.Type{}, cond, x, y)
}

func (t *tape) product(n *program.Node, _ program.ID, dy program.Value) {
	x, y := t.values[n.Args[0]], t.values[n.Args[1]]
	a := n.Attr
	batch := len(a.LhsBatch)
	left := program.OtherAxes(x.Type().Rank(), a.LhsBatch, a.LhsContract)
	right := program.OtherAxes(y.Type().Rank(), a.RhsBatch, a.RhsContract)
	if t.active[n.Args[0]] {
		t.add(n.Args[0], t.factor(dy, y, factor{
			batch: a.RhsBatch, contract: right, first: batch + len(left),
			ownBatch: a.LhsBatch, ownFree: left, ownContract: a.LhsContract, otherContract: a.RhsContract,
		}))
	}
	if t.active[n.Args[1]] {
		t.add(n.Args[1], t.factor(dy, x, factor{
			batch: a.LhsBatch, contract: left, first: batch,
			ownBatch: a.RhsBatch, ownFree: right, ownContract: a.RhsContract, otherContract: a.LhsContract,
		}))
	}
}

// factor describes the product that gives one operand's cotangent from dy and the
// other operand. dy has the batch axes first, then the free axes of the left
// operand, then those of the right.
type factor struct {
	batch, contract []int // of the other operand: batch axes, and free axes, summed with those of dy
	first           int   // the first of those free axes in dy
	// ownBatch, ownFree and ownContract are the axes of the operand whose cotangent is
	// computed; otherContract are the axes of the other operand contracted with ownContract.
	ownBatch, ownFree, ownContract, otherContract []int
}

// factor multiplies dy and other in the order that leaves the axes as in the
// operand, if one of the two does; otherwise it transposes the product.
func (t *tape) factor(dy, other program.Value, f factor) program.Value {
	dyBatch, dyContract := count(0, len(f.batch)), count(f.first, len(f.contract))
	// The free axes of other keep its order; matched has the own axis that each of them was
	// contracted with.
	var matched []int
	for _, axis := range slices.Sorted(slices.Values(f.otherContract)) {
		matched = append(matched, f.ownContract[slices.Index(f.otherContract, axis)])
	}
	// Axis i of the product is the operand's axis layout[i].
	if layout := slices.Concat(f.ownBatch, matched, f.ownFree); slices.IsSorted(layout) {
		return t.dot(other, dy, f.contract, dyContract, f.batch, dyBatch)
	}
	product := t.dot(dy, other, dyContract, f.contract, dyBatch, f.batch)
	return t.transpose(product, inverse(slices.Concat(f.ownBatch, f.ownFree, matched)))
}

func (t *tape) dot(x, y program.Value, xContract, yContract, xBatch, yBatch []int) program.Value {
	return t.w.Apply(program.OpDot, program.Attr{
		LhsContract: xContract, RhsContract: yContract, LhsBatch: xBatch, RhsBatch: yBatch,
	}, program.Type{}, x, y)
}

// count returns first, first+1, …, first+n−1.
func count(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}
