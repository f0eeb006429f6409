package program

import (
	"math"
	"strings"
)

// Op identifies an operation. The numbers are those of the wire format and never
// change their meaning.
type Op uint16

// Class groups operations that share their shape rule and their lowering.
type Class uint8

// The classes of operations.
const (
	ClassSource      Class = iota + 1 // no tensor operands
	ClassUnary                        // elementwise, one operand
	ClassBinary                       // elementwise, two operands, broadcasting axes of size 1
	ClassCompare                      // like ClassBinary, with a bool result
	ClassElementwise                  // other elementwise ones, each with its own shape rule
	ClassShape                        // moves elements without computing
	ClassReduce                       // reduces over axes
	ClassLinear                       // dot and hadamard
	ClassGradient                     // stop_gradient
	ClassLinalg                       // factorizations and sort_columns, in refresh programs only
	ClassTable                        // operations on tables; top_k and order_statistic
	ClassCall                         // call
)

// OpInfo describes one operation. Its text is the normative definition for
// authors of plugins in any language.
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
	// Gradient describes the reverse pass.
	Gradient string
}

// row is a row of the operation table: the definition of an operation.
type row struct {
	OpInfo
	infer    typeRule
	uses     attributes
	work     func(n *Node, args []Type) float64 // multiplications; nil if only the size is limited
	gradient gradient
	// Scalar functions of an elementwise operation; see [Op.Scalar].
	floats func(x, y float64) float64
	ints   func(x, y int64) int64
}

func unary(op Op, name string, types []DType, meaning string,
	ofFloat func(float64) float64, ofInt func(int64) int64, g gradient) row {
	r := row{
		OpInfo: OpInfo{Op: op, Name: name, Class: ClassUnary, Arity: 1, Operands: joinTypes(types, ", "),
			Meaning: meaning},
		infer: inferUnary(types), gradient: g,
	}
	if ofFloat != nil {
		r.floats = func(x, _ float64) float64 { return ofFloat(x) }
	}
	if ofInt != nil {
		r.ints = func(x, _ int64) int64 { return ofInt(x) }
	}
	return r
}

func binary(op Op, name string, types []DType, meaning string,
	ofFloats func(x, y float64) float64, ofInts func(x, y int64) int64, g gradient) row {
	return row{
		OpInfo: OpInfo{Op: op, Name: name, Class: ClassBinary, Arity: 2, Operands: joinTypes(types, ", "),
			Meaning: meaning},
		infer: inferBinary(types), gradient: g, floats: ofFloats, ints: ofInts,
	}
}

func compare(op Op, name string, types []DType, meaning string,
	ofFloats func(x, y float64) bool, ofInts func(x, y int64) bool) row {
	r := binary(op, name, types, meaning,
		func(x, y float64) float64 { return truth[float64](ofFloats(x, y)) },
		func(x, y int64) int64 { return truth[int64](ofInts(x, y)) }, zero)
	r.Class, r.infer = ClassCompare, inferComparison(types)
	return r
}

func reduction(op Op, name, meaning string, g gradient) row {
	return row{
		OpInfo: OpInfo{Op: op, Name: name, Class: ClassReduce, Arity: 1,
			Operands:   joinTypes(numbers, ", "),
			Attributes: "axes: increasing", Meaning: meaning},
		infer: inferReduce, uses: usesAxes, gradient: g,
	}
}

func truth[T float64 | int64](v bool) T {
	if v {
		return 1
	}
	return 0
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	case x == 0:
		return 0
	}
	return x // NaN
}

func ldexp(x, n float64) float64 {
	if math.IsNaN(n) {
		return n
	}
	const most = 4096 // any result beyond is 0 or infinite
	return math.Ldexp(x, int(min(max(n, -most), most)))
}

func joinTypes(types []DType, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, separator)
}

// rows holds the rows of the table by operation. It is filled by init, because gradients in the
// table write operations, which look up their rows.
var rows = map[Op]*row{}

func init() {
	for i := range table {
		r := &table[i]
		r.Gradient = r.gradient.text
		rows[r.Op] = r
	}
	rows[OpCall] = &callRow
}

// Info returns the description of op and whether op exists.
func (op Op) Info() (OpInfo, bool) {
	if r, ok := rows[op]; ok {
		return r.OpInfo, true
	}
	return OpInfo{}, false
}

// Scalar returns the functions by which a unary, binary or compare operation computes an element:
// one for floats, and one for ints, uints and bools (0 and 1). Either is nil if op does not accept
// its types. The caller wraps integer results to the range of their type. Comparisons and is_finite
// return 0 or 1. Unary operations ignore y. Shift counts are reduced modulo 32.
func (op Op) Scalar() (floats func(x, y float64) float64, ints func(x, y int64) int64) {
	r := rows[op]
	return r.floats, r.ints
}

// String returns the operation's name in the text form.
func (op Op) String() string {
	if r, ok := rows[op]; ok {
		return r.Name
	}
	return "invalid"
}

// Ops returns the table of all operations in the order of their numbers.
func Ops() []OpInfo {
	infos := make([]OpInfo, len(table))
	for i, r := range table {
		infos[i] = r.OpInfo
	}
	return infos
}
