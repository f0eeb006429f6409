package program

// Op names an operation. The numbers are those of the wire format and never
// change their meaning.
type Op uint16

// The operations; [Ops] describes each exactly.
const (
	OpInvalid Op = 0

	OpConstant   Op = 1
	OpIota       Op = 2
	OpRandomBits Op = 3

	OpNeg      Op = 10
	OpAbs      Op = 11
	OpSign     Op = 12
	OpSqrt     Op = 13
	OpExp      Op = 14
	OpExpm1    Op = 15
	OpLog      Op = 16
	OpLog1p    Op = 17
	OpTanh     Op = 18
	OpFloor    Op = 19
	OpRound    Op = 20
	OpLogb     Op = 21
	OpIsFinite Op = 22
	OpNot      Op = 23

	OpAdd   Op = 30
	OpSub   Op = 31
	OpMul   Op = 32
	OpDiv   Op = 33
	OpPow   Op = 34
	OpMax   Op = 35
	OpMin   Op = 36
	OpLdexp Op = 37
	OpAnd   Op = 38
	OpOr    Op = 39
	OpXor   Op = 40
	OpShl   Op = 41
	OpShr   Op = 42
	OpClamp Op = 43

	OpEq Op = 50
	OpNe Op = 51
	OpLt Op = 52
	OpLe Op = 53
	OpGt Op = 54
	OpGe Op = 55

	OpSelect  Op = 60
	OpConvert Op = 61
	OpBitcast Op = 62

	OpReshape     Op = 70
	OpTranspose   Op = 71
	OpBroadcast   Op = 72
	OpSlice       Op = 73
	OpConcatenate Op = 74

	OpReduceSum Op = 80
	OpReduceMax Op = 81
	OpReduceMin Op = 82

	OpDot      Op = 90
	OpHadamard Op = 91

	OpStopGradient Op = 100

	OpQR          Op = 110
	OpEighValues  Op = 111
	OpEighVectors Op = 112
	OpSortColumns Op = 113
)

// Class groups operations that share their shape rule and their lowering.
type Class uint8

// The classes of operations.
const (
	ClassSource      Class = iota + 1 // no tensor operands
	ClassUnary                        // elementwise, one operand
	ClassBinary                       // elementwise, two operands, repeating axes of size 1
	ClassCompare                      // like ClassBinary, with a bool result
	ClassElementwise                  // clamp, select, convert, bitcast: elementwise with a rule of their own
	ClassShape                        // moves elements without computing
	ClassReduce                       // folds axes away
	ClassLinear                       // dot and hadamard
	ClassGradient                     // stop_gradient
	ClassLinalg                       // matrix factorizations and the sorting of columns, in refresh programs only
)

// OpInfo describes one operation: this is the normative text for authors of
// plugins in any language.
type OpInfo struct {
	Op    Op
	Name  string
	Class Class
	// Arity is the number of operands, -1 for one or more.
	Arity int
	// Operands names the accepted element types.
	Operands string
	// Attributes names the node's attributes, empty when it has none.
	Attributes string
	// Meaning is the exact semantics: shapes, rounding, NaN behaviour.
	Meaning string
	// Gradient says what the reverse pass does.
	Gradient string
}

// Info returns the description of op and whether op exists.
func (op Op) Info() (OpInfo, bool) {
	info, ok := opIndex[op]
	return info, ok
}

// String returns the operation's name in the text form.
func (op Op) String() string {
	if info, ok := opIndex[op]; ok {
		return info.Name
	}
	return "invalid"
}

// Ops returns the table of all operations in the order of their numbers.
func Ops() []OpInfo { return append([]OpInfo(nil), opTable...) }

var opIndex = func() map[Op]OpInfo {
	index := make(map[Op]OpInfo, len(opTable))
	for _, info := range opTable {
		index[info.Op] = info
	}
	return index
}()
