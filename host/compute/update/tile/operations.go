package tile

import "github.com/cage-qat/cage/sdk/program"

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

// unaryOps are the operations with one operand that have a loop.
var unaryOps = map[program.Op]opcode{
	program.OpNeg: opNeg, program.OpAbs: opAbs, program.OpSign: opSign, program.OpSqrt: opSqrt,
	program.OpExpm1: opExpm1, program.OpLog: opLog, program.OpLog1p: opLog1p,
	program.OpFloor: opFloor, program.OpRound: opRound, program.OpIsFinite: opIsFinite,
}

// foldOps are the reductions.
var foldOps = map[program.Op]opcode{
	program.OpReduceSum: opSum, program.OpReduceMax: opLargest, program.OpReduceMin: opSmallest,
}

// binaryOps are the operations on two tensors. Greater is less with the operands
// exchanged.
var binaryOps = map[program.Op]opcode{
	program.OpAdd: opAdd, program.OpSub: opSub, program.OpMul: opMul, program.OpDiv: opDiv,
	program.OpPow: opPow, program.OpMax: opMax, program.OpMin: opMin,
	program.OpAnd: opMul, program.OpOr: opMax, program.OpXor: opNe,
	program.OpEq: opEq, program.OpNe: opNe, program.OpLt: opLt, program.OpLe: opLe,
	program.OpGt: opLt, program.OpGe: opLe,
}

// withScalar are the forms of operations whose right operand is a scalar, and
// scalarWith those whose left one is.
var (
	withScalar = map[opcode]opcode{opAdd: opAddS, opSub: opSubS, opMul: opMulS, opDiv: opDivS}
	scalarWith = map[opcode]opcode{opAdd: opAddS, opSub: opFromS, opMul: opMulS, opDiv: opIntoS}
)

// elementwise adds an operation at least one of whose operands is a tensor.
func (a *analysis) elementwise(n *program.Node, args []ref) (ref, error) {
	if op, ok := unaryOps[n.Op]; ok {
		return a.tensor(node{op: op, in: []int{args[0].id}}), nil
	}
	if op, ok := binaryOps[n.Op]; ok {
		if n.Op == program.OpGt || n.Op == program.OpGe {
			args[0], args[1] = args[1], args[0]
		}
		return a.binary(op, args[0], args[1]), nil
	}
	switch n.Op {
	case program.OpNot:
		return a.tensor(node{op: opFromS, in: []int{args[0].id}, s: []int{a.scalars.one()}}), nil
	case program.OpClamp:
		return a.tensor(node{op: opClamp, in: []int{args[0].id}, s: []int{args[1].id, args[2].id}}), nil
	case program.OpSelect:
		return a.selection(args), nil
	case program.OpConvert:
		if from := a.p.TypeOf(n.Args[0]).DType; n.Type.DType == program.Bool && from == program.Float {
			return a.binary(opNe, args[0], ref{aScalar, a.scalars.number(0), 0}), nil
		}
		return args[0], nil
	}
	return ref{}, a.refuse(n, "tiles do not have this operation")
}

func (a *analysis) binary(op opcode, x, y ref) ref {
	if special, ok := withScalar[op]; ok && y.kind == aScalar {
		return a.tensor(node{op: special, in: []int{x.id}, s: []int{y.id}})
	}
	if special, ok := scalarWith[op]; ok && x.kind == aScalar {
		return a.tensor(node{op: special, in: []int{y.id}, s: []int{x.id}})
	}
	return a.tensor(node{op: op, in: []int{a.vector(x), a.vector(y)}})
}

func (a *analysis) selection(args []ref) ref {
	c, x, y := args[0], args[1], args[2]
	switch {
	case c.kind == aTensor:
		return a.tensor(node{op: opSelect, in: []int{c.id, a.vector(x), a.vector(y)}})
	case x.kind == aTensor && y.kind == aScalar:
		return a.tensor(node{op: opSelectZ, in: []int{x.id}, s: []int{c.id, y.id}})
	}
	return a.tensor(node{op: opSelectS, in: []int{a.vector(x), a.vector(y)}, s: []int{c.id}})
}
