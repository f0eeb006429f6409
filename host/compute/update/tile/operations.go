package tile

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// opcode is an operation on tiles. Bools are the floats 0 and 1.
type opcode uint8

const (
	opInput opcode = iota
	opFill         // s
	opCopy

	opAdd  // a + b
	opAddS // a + s
	opSub
	opSubS // a − s
	opFromS
	opMul
	opMulS
	opDiv
	opDivS
	opIntoS // s / a

	opMax
	opMin
	opClamp // a within s, t
	opPow

	opNeg
	opAbs
	opSign
	opSqrt
	opFloor
	opRound
	opExpm1
	opLog
	opLog1p
	opIsFinite
	opRotate // runs of as many elements as the instruction's t, by the Walsh–Hadamard matrix

	opEq
	opNe
	opLt
	opLe

	opSelect  // a ≠ 0: b, else c
	opSelectS // s ≠ 0: a, else b
	opSelectZ // s ≠ 0: a, else t

	// Operations that stand for several; every step rounds, as in those.
	opMulMulS // (a·b)·s
	opLinAdd  // a·s + b·t
	opLinSub  // a·s − b·t
	opLinMul  // a·s + (b·c)·t
	opSqrtLin // √a·s + t

	// Reductions; s is the number of the reduction.
	opSum
	opSumMul  // Σ a·b
	opSumDiff // Σ (a − b)²
	opLargest
	opSmallest
)

// A rule adds the scalar or tensor that is the result of a node, and returns a reference to it.
type rule func(a *analysis, n *program.Node, args []ref) (ref, error)

// rules has the operations that tiles compute.
var rules = map[program.Op]rule{
	program.OpConstant: (*analysis).constant,

	program.OpNeg:      one(opNeg),
	program.OpAbs:      one(opAbs),
	program.OpSign:     one(opSign),
	program.OpSqrt:     one(opSqrt),
	program.OpExpm1:    one(opExpm1),
	program.OpLog:      one(opLog),
	program.OpLog1p:    one(opLog1p),
	program.OpFloor:    one(opFloor),
	program.OpRound:    one(opRound),
	program.OpIsFinite: one(opIsFinite),
	program.OpNot:      elementwise((*analysis).not, func(x, _, _ float32) float32 { return 1 - x }),

	program.OpAdd:   two(opAdd),
	program.OpSub:   two(opSub),
	program.OpMul:   two(opMul),
	program.OpDiv:   two(opDiv),
	program.OpPow:   two(opPow),
	program.OpMax:   two(opMax),
	program.OpMin:   two(opMin),
	program.OpAnd:   two(opMul),
	program.OpOr:    two(opMax),
	program.OpXor:   two(opNe),
	program.OpClamp: elementwise((*analysis).clamp, clamp),

	program.OpEq: two(opEq),
	program.OpNe: two(opNe),
	program.OpLt: two(opLt),
	program.OpLe: two(opLe),
	program.OpGt: swapped(opLt),
	program.OpGe: swapped(opLe),

	program.OpSelect:  elementwise((*analysis).selection, selected),
	program.OpConvert: (*analysis).convert,

	program.OpReshape:      (*analysis).same,
	program.OpBroadcast:    (*analysis).broadcast,
	program.OpReduceSum:    folding(opSum),
	program.OpReduceMax:    folding(opLargest),
	program.OpReduceMin:    folding(opSmallest),
	program.OpHadamard:     (*analysis).rotation,
	program.OpStopGradient: (*analysis).same,
}

// notYet has the operations that tiles could compute but do not, and impossible those that tiles can never compute, with
// the reasons.
var (
	notYet = map[program.Op]string{
		program.OpIota:       "its elements differ",
		program.OpRandomBits: noIntegers,
		program.OpExp:        noLoop,
		program.OpTanh:       noLoop,
		program.OpLogb:       noLoop,
		program.OpLdexp:      noLoop,
		program.OpShl:        noIntegers,
		program.OpShr:        noIntegers,
		program.OpBitcast:    noIntegers,
	}
	impossible = map[program.Op]string{
		program.OpTranspose:   moves,
		program.OpSlice:       moves,
		program.OpConcatenate: moves,
		program.OpDot:         mixes,
		program.OpQR:          mixes,
		program.OpEighValues:  mixes,
		program.OpEighVectors: mixes,
		program.OpSortColumns: mixes,
	}
)

const (
	noLoop     = "tiles do not have this operation"
	noIntegers = "tiles do not compute integers"
	moves      = "elements change their places"
	mixes      = "an element of the result depends on many others"
)

// elementwise is the rule of an elementwise operation: tensors adds it for operands some of which are tensors, and scalars
// computes it if all of them are scalars. Operands that the operation does not have are undefined.
func elementwise(tensors func(a *analysis, args []ref) ref, scalars func(x, y, z float32) float32) rule {
	return func(a *analysis, n *program.Node, args []ref) (ref, error) {
		tensor := false
		for _, r := range args {
			if r.kind == partialRef {
				return ref{}, a.refusePartial(n)
			}
			tensor = tensor || r.kind == tensorRef
		}
		if tensor {
			return tensors(a, args), nil
		}
		return a.scalarOperation(scalars, args), nil
	}
}

// one is the rule of an operation with one operand and a loop.
func one(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.tensor(node{op: op, in: []int{args[0].id}}) },
		func(x, _, _ float32) float32 { return unary(op, x) })
}

// two is the rule of an operation with two operands and a loop.
func two(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.binary(op, args[0], args[1]) },
		func(x, y, _ float32) float32 { return binary(op, x, y) })
}

// swapped is two with the operands exchanged: x > y is y < x.
func swapped(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.binary(op, args[1], args[0]) },
		func(x, y, _ float32) float32 { return binary(op, y, x) })
}

// folding is the rule of a reduction.
func folding(op opcode) rule {
	return func(a *analysis, n *program.Node, args []ref) (ref, error) { return a.fold(n, op, args[0]) }
}

func (a *analysis) not(args []ref) ref {
	return a.tensor(node{op: opFromS, in: []int{args[0].id}, s: []int{a.scalars.constant(1)}})
}

func (a *analysis) clamp(args []ref) ref {
	return a.tensor(node{op: opClamp, in: []int{args[0].id}, s: []int{args[1].id, args[2].id}})
}

// convert makes a bool of a float; the others are floats already.
func (a *analysis) convert(n *program.Node, args []ref) (ref, error) {
	if from := a.p.TypeOf(n.Args[0]).DType; n.Type.DType == program.Bool && from == program.Float {
		return two(opNe)(a, n, []ref{args[0], {kind: scalarRef, id: a.scalars.constant(0)}})
	}
	if args[0].kind == partialRef {
		return ref{}, a.refusePartial(n)
	}
	return args[0], nil
}

// same is the rule of operations that change no element's position.
func (a *analysis) same(_ *program.Node, args []ref) (ref, error) { return args[0], nil }

// broadcast repeats a scalar.
func (a *analysis) broadcast(n *program.Node, args []ref) (ref, error) {
	if r := args[0]; r.kind == scalarRef || r.kind == tensorRef && n.Type.Size() == a.size {
		return r, nil
	}
	return ref{}, a.never(len(a.refs), n, "%s", moves)
}

// withScalar has the forms of operations for a scalar as the right operand, scalarWith
// those for a scalar as the left operand.
var (
	withScalar = map[opcode]opcode{opAdd: opAddS, opSub: opSubS, opMul: opMulS, opDiv: opDivS}
	scalarWith = map[opcode]opcode{opAdd: opAddS, opSub: opFromS, opMul: opMulS, opDiv: opIntoS}
)

func (a *analysis) binary(op opcode, x, y ref) ref {
	if special, ok := withScalar[op]; ok && y.kind == scalarRef {
		return a.tensor(node{op: special, in: []int{x.id}, s: []int{y.id}})
	}
	if special, ok := scalarWith[op]; ok && x.kind == scalarRef {
		return a.tensor(node{op: special, in: []int{y.id}, s: []int{x.id}})
	}
	return a.tensor(node{op: op, in: []int{a.vector(x), a.vector(y)}})
}

func (a *analysis) selection(args []ref) ref {
	c, x, y := args[0], args[1], args[2]
	switch {
	case c.kind == tensorRef:
		return a.tensor(node{op: opSelect, in: []int{c.id, a.vector(x), a.vector(y)}})
	case x.kind == tensorRef && y.kind == scalarRef:
		return a.tensor(node{op: opSelectZ, in: []int{x.id}, s: []int{c.id, y.id}})
	}
	return a.tensor(node{op: opSelectS, in: []int{a.vector(x), a.vector(y)}, s: []int{c.id}})
}

// unary and binary compute operations on one element. They define what all loops compute. Products are
// converted before they are added, so that no compiler fuses the two.
func unary(op opcode, x float32) float32 {
	switch op {
	case opNeg:
		return math.Float32frombits(math.Float32bits(x) ^ 1<<31)
	case opAbs:
		return math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	case opSign:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		case x == 0:
			return 0
		}
		return x
	case opSqrt:
		return float32(math.Sqrt(float64(x)))
	case opFloor:
		return float32(math.Floor(float64(x)))
	case opRound:
		return float32(math.RoundToEven(float64(x))) + 0
	case opExpm1:
		return float32(math.Expm1(float64(x)))
	case opLog:
		return float32(math.Log(float64(x)))
	case opLog1p:
		return float32(math.Log1p(float64(x)))
	case opIsFinite:
		return truth(x-x == 0)
	}
	panic("tile: not an operation with one operand")
}

func binary(op opcode, x, y float32) float32 {
	switch op {
	case opAdd:
		return x + y
	case opSub:
		return x - y
	case opMul:
		return x * y
	case opDiv:
		return x / y
	case opPow:
		return float32(math.Pow(float64(x), float64(y)))
	case opMax: // NaN if either operand is
		if x > y || x != x {
			return x
		}
		return y
	case opMin: // likewise
		if x < y || x != x {
			return x
		}
		return y
	case opEq:
		return truth(x == y)
	case opNe:
		return truth(x != y)
	case opLt:
		return truth(x < y)
	case opLe:
		return truth(x <= y)
	}
	panic("tile: not an operation with two operands")
}

func truth(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// clamp limits x to lo and hi; NaN stays NaN.
func clamp(x, lo, hi float32) float32 {
	if x < lo {
		x = lo
	}
	if x > hi {
		x = hi
	}
	return x
}

// selected takes y where the condition holds, else z.
func selected(condition, y, z float32) float32 {
	if condition != 0 {
		return y
	}
	return z
}
