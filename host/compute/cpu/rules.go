package cpu

import (
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

// byType holds the loops of an operation for floats, ints, uints and bools.
type byType [4]loops.Op

func (o byType) of(d program.DType) loops.Op { return o[d-program.Float] }

func forAll(op loops.Op) byType { return byType{op, op, op, op} }

// operations maps elementwise operations to their loops. Bools are the floats 0 and 1. Unlisted
// float operations are computed element by element: see opFunction.
var operations = map[program.Op]byType{
	program.OpNeg:      {loops.Neg, loops.NegBits},
	program.OpAbs:      {loops.Abs, loops.AbsInt},
	program.OpSign:     {loops.Sign, loops.SignInt},
	program.OpSqrt:     {loops.Sqrt},
	program.OpExp:      {loops.Exp},
	program.OpTanh:     {loops.Tanh},
	program.OpFloor:    {loops.Floor},
	program.OpRound:    {loops.Round},
	program.OpLogb:     {loops.Logb},
	program.OpIsFinite: {loops.IsFinite},
	program.OpNot:      {loops.None, loops.Not, loops.Not, loops.Sub}, // 1 − x of a bool
	program.OpAdd:      {loops.Add, loops.AddBits, loops.AddBits},
	program.OpSub:      {loops.Sub, loops.SubBits, loops.SubBits},
	program.OpMul:      {loops.Mul, loops.MulBits, loops.MulBits},
	program.OpDiv:      {loops.Div},
	program.OpMax:      {loops.Max, loops.MaxInt, loops.MaxUint},
	program.OpMin:      {loops.Min, loops.MinInt, loops.MinUint},
	program.OpLdexp:    {loops.Ldexp},
	program.OpAnd:      forAll(loops.And),
	program.OpOr:       forAll(loops.Or),
	program.OpXor:      forAll(loops.Xor),
	program.OpShl:      forAll(loops.Shl),
	program.OpShr:      {loops.None, loops.ShrInt, loops.ShrUint},
	program.OpEq:       {loops.Eq, loops.EqBits, loops.EqBits, loops.Eq},
	program.OpNe:       {loops.Ne, loops.NeBits, loops.NeBits, loops.Ne},
	program.OpLt:       {loops.Lt, loops.LtInt, loops.LtUint},
	program.OpLe:       {loops.Le, loops.LeInt, loops.LeUint},
	program.OpGt:       {loops.Lt, loops.LtInt, loops.LtUint}, // with the operands swapped
	program.OpGe:       {loops.Le, loops.LeInt, loops.LeUint}, // with the operands swapped
	program.OpClamp:    {opClamp},
	program.OpSelect:   forAll(opSelect),
}

// operation returns the opcode for an elementwise node. swapped reports that its operands must be
// swapped. The opcode of a conversion that changes nothing is loops.None.
func (a *analysis) operation(n *program.Node) (op loops.Op, swapped bool, err error) {
	from := a.p.TypeOf(n.Args[0]).DType
	if n.Op == program.OpConvert {
		return conversion(from, n.Type.DType), false, nil
	}
	if floats, _ := n.Op.Scalar(); operations[n.Op] == (byType{}) && floats != nil &&
		from == program.Float && n.Op < functions {
		return opFunction + loops.Op(n.Op), false, nil
	}
	if op = operations[n.Op].of(from); op == loops.None {
		return op, false, a.refuse(n, "the CPU executor does not have it for %s", from)
	}
	return op, n.Op == program.OpGt || n.Op == program.OpGe, nil
}

// functionOf returns the function that an opFunction applies; nil for other operations.
func functionOf(op loops.Op) (f func(x, y float64) float64) {
	if op >= opFunction && op < opInput {
		f, _ = program.Op(op - opFunction).Scalar()
	}
	return f
}

func conversion(from, to program.DType) loops.Op {
	bits := func(d program.DType) bool { return d == program.Int || d == program.Uint }
	switch {
	case from == to || bits(from) && bits(to) || from == program.Bool && to == program.Float:
		return loops.None
	case to == program.Bool && from == program.Float:
		return loops.Ne
	case to == program.Bool:
		return loops.NeBits
	case from == program.Int:
		return loops.IntToFloat
	case from == program.Uint:
		return loops.UintToFloat
	case to == program.Uint && from == program.Float:
		return loops.FloatToUint
	}
	return loops.FloatToInt
}

func foldOf(op program.Op, d program.DType) loops.Op {
	switch op {
	case program.OpReduceMax:
		return operations[program.OpMax].of(d)
	case program.OpReduceMin:
		return operations[program.OpMin].of(d)
	}
	return operations[program.OpAdd].of(d)
}

// isBinary reports whether an operation of package loops has two operands.
func isBinary(op loops.Op) bool {
	return op >= loops.Add && op < loops.Neg || op >= loops.And && op < loops.NegBits
}
