package autodiff

import (
	"errors"

	"github.com/cage-qat/cage/sdk/program"
)

// propagate sends the cotangent dy of a node's result to its operands, by the
// rules of the operation table.
func (t *tape) propagate(n *program.Node, id program.ID, dy program.Value) error {
	info, _ := n.Op.Info()
	switch info.Class {
	case program.ClassUnary:
		t.add(n.Args[0], t.unary(n.Op, t.values[n.Args[0]], t.values[id], dy))
	case program.ClassBinary:
		t.binary(n, id, dy)
	case program.ClassElementwise:
		t.elementwise(n, id, dy)
	case program.ClassShape:
		t.shape(n, dy)
	case program.ClassReduce:
		t.reduce(n, id, dy)
	case program.ClassLinear:
		t.linear(n, dy)
	case program.ClassLinalg:
		return errors.New("a matrix factorization has no gradient: put stop_gradient around it")
	}
	return nil
}

// unary gives the cotangent of x for y = op(x).
func (t *tape) unary(op program.Op, x, y, dy program.Value) program.Value {
	switch op {
	case program.OpNeg:
		return t.neg(dy)
	case program.OpAbs:
		return t.mul(dy, t.w.Unary(program.OpSign, x))
	case program.OpSqrt:
		return t.div(t.mul(dy, t.w.Const(0.5)), y)
	case program.OpExp:
		return t.mul(dy, y)
	case program.OpExpm1:
		return t.mul(dy, t.w.Unary(program.OpExp, x))
	case program.OpLog:
		return t.div(dy, x)
	case program.OpLog1p:
		return t.div(dy, t.w.Binary(program.OpAdd, x, t.w.Const(1)))
	default: // tanh
		return t.mul(dy, t.w.Binary(program.OpSub, t.w.Const(1), t.mul(y, y)))
	}
}

func (t *tape) binary(n *program.Node, id program.ID, dy program.Value) {
	xID, yID := n.Args[0], n.Args[1]
	x, y := t.values[xID], t.values[yID]
	switch n.Op {
	case program.OpAdd:
		t.addSum(xID, dy)
		t.addSum(yID, dy)
	case program.OpSub:
		t.addSum(xID, dy)
		t.add(yID, t.neg(t.unrepeat(dy, y.Type())))
	case program.OpMul:
		t.addSum(xID, t.mul(dy, y))
		t.addSum(yID, t.mul(dy, x))
	case program.OpDiv:
		t.addSum(xID, t.div(dy, y))
		t.divisor(yID, x, y, t.values[id], dy)
	case program.OpPow:
		t.addSum(xID, t.mul(dy, t.mul(y, t.lowerPower(x, y))))
		t.addSum(yID, t.mul(dy, t.mul(t.values[id], t.w.Unary(program.OpLog, x))))
	case program.OpMax:
		t.addSum(xID, t.winner(program.OpGt, x, y, dy))
		t.addSum(yID, t.winner(program.OpGt, y, x, dy))
	case program.OpMin:
		t.addSum(xID, t.winner(program.OpLt, x, y, dy))
		t.addSum(yID, t.winner(program.OpLt, y, x, dy))
	case program.OpLdexp:
		t.addSum(xID, t.w.Binary(program.OpLdexp, dy, y))
	}
}

// divisor adds −dy·x/y² for q = x/y, without forming y², which would leave the
// range of binary32 long before the quotient does. Where y was repeated, its
// factors are taken out of the sum.
func (t *tape) divisor(id program.ID, x, y, q, dy program.Value) {
	if y.Type().Equal(q.Type()) {
		t.addSum(id, t.neg(t.mul(t.div(dy, y), q)))
		return
	}
	sum := t.unrepeat(t.mul(dy, x), y.Type())
	t.add(id, t.neg(t.div(t.div(sum, y), y)))
}

// lowerPower is x^(y−1), with the exponent of a constant power worked out here.
func (t *tape) lowerPower(x, y program.Value) program.Value {
	exponent := t.w.Binary(program.OpSub, y, t.w.Const(1))
	if c, ok := t.w.Constant(y); ok && y.Type().IsScalar() {
		exponent = t.w.Const(c - 1)
	}
	return t.w.Binary(program.OpPow, x, exponent)
}

// winner is dy where a beats b, half of it where they are equal, and zero elsewhere.
func (t *tape) winner(beats program.Op, a, b, dy program.Value) program.Value {
	tie := t.pick(t.w.Binary(program.OpEq, a, b), t.mul(dy, t.w.Const(0.5)), t.w.Const(0))
	return t.pick(t.w.Binary(beats, a, b), dy, tie)
}

func (t *tape) elementwise(n *program.Node, id program.ID, dy program.Value) {
	x, zero := t.values[n.Args[0]], t.w.Const(0)
	switch n.Op {
	case program.OpConvert:
		t.add(n.Args[0], dy) // active only from float to float
	case program.OpClamp: // a number within the bounds is the one that stays; NaN equals nothing
		t.add(n.Args[0], t.pick(t.w.Binary(program.OpEq, x, t.values[id]), dy, zero))
	case program.OpSelect:
		t.addSum(n.Args[1], t.pick(x, dy, zero))
		t.addSum(n.Args[2], t.pick(x, zero, dy))
	}
}

// reduce repeats dy along the folded axes: everywhere for a sum; for an extremum
// where it was found, in equal parts.
func (t *tape) reduce(n *program.Node, id program.ID, dy program.Value) {
	x := t.values[n.Args[0]]
	repeat := func(v program.Value) program.Value {
		return t.broadcast(v, x.Shape(), others(x.Type().Rank(), n.Attr.Axes))
	}
	if n.Op == program.OpReduceSum {
		t.add(n.Args[0], repeat(dy))
		return
	}
	found := t.w.Binary(program.OpEq, x, repeat(t.values[id]))
	ones := t.w.Apply(program.OpConvert, program.Attr{}, program.FloatType(), found)
	count := t.w.Apply(program.OpReduceSum, n.Attr, program.Type{}, ones)
	t.add(n.Args[0], t.pick(found, repeat(t.div(dy, count)), t.w.Const(0)))
}

// addSum adds the cotangent of an elementwise operand, summed over the axes along
// which the operand was repeated.
func (t *tape) addSum(id program.ID, d program.Value) {
	t.add(id, t.unrepeat(d, t.p.TypeOf(id)))
}

func (t *tape) neg(x program.Value) program.Value    { return t.w.Unary(program.OpNeg, x) }
func (t *tape) mul(x, y program.Value) program.Value { return t.w.Binary(program.OpMul, x, y) }
func (t *tape) div(x, y program.Value) program.Value { return t.w.Binary(program.OpDiv, x, y) }

func (t *tape) pick(cond, x, y program.Value) program.Value {
	return t.w.Apply(program.OpSelect, program.Attr{}, program.Type{}, cond, x, y)
}
