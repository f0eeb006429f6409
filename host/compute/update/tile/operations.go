package tile

import (
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

// opcode is an operation on tiles: one of package loops, or one of those below.
type opcode = loops.Op

const (
	opInput opcode = loops.Count + iota
	opFill         // s
	opCopy

	opAddS // a + s
	opSubS // a − s
	opFromS
	opMulS
	opDivS
	opIntoS // s / a
	opClamp // a within s, t

	opRotate // runs of as many elements as the instruction's t, by the Walsh–Hadamard matrix

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

	program.OpNeg:      unaryRule(loops.Neg),
	program.OpAbs:      unaryRule(loops.Abs),
	program.OpSign:     unaryRule(loops.Sign),
	program.OpSqrt:     unaryRule(loops.Sqrt),
	program.OpExpm1:    unaryRule(loops.Expm1),
	program.OpLog:      unaryRule(loops.Log),
	program.OpLog1p:    unaryRule(loops.Log1p),
	program.OpFloor:    unaryRule(loops.Floor),
	program.OpRound:    unaryRule(loops.Round),
	program.OpIsFinite: unaryRule(loops.IsFinite),
	program.OpNot:      elementwise((*analysis).not, func(x, _, _ float32) float32 { return 1 - x }),

	program.OpAdd:   binaryRule(loops.Add),
	program.OpSub:   binaryRule(loops.Sub),
	program.OpMul:   binaryRule(loops.Mul),
	program.OpDiv:   binaryRule(loops.Div),
	program.OpPow:   binaryRule(loops.Pow),
	program.OpMax:   binaryRule(loops.Max),
	program.OpMin:   binaryRule(loops.Min),
	program.OpAnd:   binaryRule(loops.Mul),
	program.OpOr:    binaryRule(loops.Max),
	program.OpXor:   binaryRule(loops.Ne),
	program.OpClamp: elementwise((*analysis).clamp, loops.Clamp1),

	program.OpEq: binaryRule(loops.Eq),
	program.OpNe: binaryRule(loops.Ne),
	program.OpLt: binaryRule(loops.Lt),
	program.OpLe: binaryRule(loops.Le),
	program.OpGt: swappedRule(loops.Lt),
	program.OpGe: swappedRule(loops.Le),

	program.OpSelect:  elementwise((*analysis).selection, loops.Select1),
	program.OpConvert: (*analysis).convert,

	program.OpReshape:      (*analysis).same,
	program.OpBroadcast:    (*analysis).broadcast,
	program.OpReduceSum:    reductionRule(opSum),
	program.OpReduceMax:    reductionRule(opLargest),
	program.OpReduceMin:    reductionRule(opSmallest),
	program.OpHadamard:     (*analysis).rotation,
	program.OpStopGradient: (*analysis).same,
}

// notYet has the operations that tiles could compute but do not, and neverPossible those that tiles can never compute, with
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
		program.OpNearest:    noIntegers,
		program.OpLookup:     noIntegers,
		program.OpTopK:       noLoop,
	}
	neverPossible = map[program.Op]string{
		program.OpTranspose:   moves,
		program.OpSlice:       moves,
		program.OpConcatenate: moves,
		program.OpDot:         mixes,
		program.OpQR:          mixes,
		program.OpEighValues:  mixes,
		program.OpEighVectors: mixes,
		program.OpSortColumns: mixes,

		program.OpScatterAdd:     mixes,
		program.OpOrderStatistic: mixes,
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

// unaryRule is the rule of an operation with one operand and a loop.
func unaryRule(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.tensor(node{op: op, in: []int{args[0].id}}) },
		func(x, _, _ float32) float32 { return loops.One(op, x) })
}

// binaryRule is the rule of an operation with two operands and a loop.
func binaryRule(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.binary(op, args[0], args[1]) },
		func(x, y, _ float32) float32 { return loops.Two(op, x, y) })
}

// swappedRule is two with the operands exchanged: x > y is y < x.
func swappedRule(op opcode) rule {
	return elementwise(
		func(a *analysis, args []ref) ref { return a.binary(op, args[1], args[0]) },
		func(x, y, _ float32) float32 { return loops.Two(op, y, x) })
}

// reductionRule is the rule of a reduction.
func reductionRule(op opcode) rule {
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
		return binaryRule(loops.Ne)(a, n, []ref{args[0], {kind: scalarRef, id: a.scalars.constant(0)}})
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
	return ref{}, a.refuseForever(len(a.refs), n, "%s", moves)
}

// withScalar has the forms of operations for a scalar as the right operand, scalarWith
// those for a scalar as the left operand.
var (
	withScalar = map[opcode]opcode{loops.Add: opAddS, loops.Sub: opSubS, loops.Mul: opMulS, loops.Div: opDivS}
	scalarWith = map[opcode]opcode{loops.Add: opAddS, loops.Sub: opFromS, loops.Mul: opMulS, loops.Div: opIntoS}
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
