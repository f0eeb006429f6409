package program

import "strings"

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
	ClassElementwise                  // clamp, select, convert, bitcast: elementwise, each with its own shape rule
	ClassShape                        // moves elements without computing
	ClassReduce                       // reduces over axes
	ClassLinear                       // dot and hadamard
	ClassGradient                     // stop_gradient
	ClassLinalg                       // matrix factorizations and sort_columns, in refresh programs only
	ClassTable                        // nearest, lookup and scatter_add in tables; top_k and order_statistic
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

// row is a row of the operation table: the description, and the validity rules of its nodes.
type row struct {
	OpInfo
	infer       typeRule
	uses        attributes
	work        func(n *Node, args []Type) float64 // multiplications; nil if only the size is limited
	approximate bool
}

func unary(op Op, name string, types []DType, meaning, gradient string) row {
	return row{OpInfo: OpInfo{op, name, ClassUnary, 1, joinTypes(types, ", "), "", meaning, gradient}, infer: inferUnary(types)}
}

func binary(op Op, name string, types []DType, meaning, gradient string) row {
	return row{OpInfo: OpInfo{op, name, ClassBinary, 2, joinTypes(types, ", "), "", meaning, gradient}, infer: inferBinary(types)}
}

func compare(op Op, name string, types []DType, meaning string) row {
	return row{OpInfo: OpInfo{op, name, ClassCompare, 2, joinTypes(types, ", "), "", meaning, zero}, infer: inferComparison(types)}
}

func approximate(r row) row {
	r.approximate = true
	return r
}

func joinTypes(types []DType, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, separator)
}

var rows = func() map[Op]*row {
	index := make(map[Op]*row, len(table))
	for i := range table {
		index[table[i].Op] = &table[i]
	}
	return index
}()

// Info returns the description of op and whether op exists.
func (op Op) Info() (OpInfo, bool) {
	if r, ok := rows[op]; ok {
		return r.OpInfo, true
	}
	return OpInfo{}, false
}

// Approximate reports whether correct results of op in binary32 may differ between machines, as for
// sums, whose order is not defined, and for functions that are not correctly rounded.
func (op Op) Approximate() bool {
	r, ok := rows[op]
	return ok && r.approximate
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
