package program

import "math"

// This file defines the language: the numbers of the operations, the table that defines them, and
// the methods of [Value] that write them. Package reference executes the table, package autodiff
// applies its gradients, and executors of the host lower it. docs/reference/operations.md and the
// enumeration of the wire format are generated from it.
//
// Elementwise operands have equal rank, or one of them is a scalar; each axis has equal sizes, or
// size 1 in one operand, which is then repeated along it. There is no other implicit broadcasting.

//go:generate go run ../../tools/opsdoc -out ../../docs/reference/operations.md

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
	OpSin      Op = 24
	OpCos      Op = 25

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

	OpNearest        Op = 120
	OpLookup         Op = 121
	OpScatterAdd     Op = 122
	OpTopK           Op = 123
	OpOrderStatistic Op = 124
)

// Element types of operands.
var (
	floats   = []DType{Float}
	signed   = []DType{Float, Int}
	numbers  = []DType{Float, Int, Uint}
	integers = []DType{Int, Uint}
	logical  = []DType{Bool, Int, Uint}
	anyType  = []DType{Float, Int, Uint, Bool}
)

var table = []row{
	{
		OpInfo: OpInfo{Op: OpConstant, Name: "constant", Class: ClassSource,
			Attributes: "type; floats or ints: one element, or all elements in row-major order",
			Meaning: "A value known when the program is built. One element fills the whole shape. " +
				"Float elements, which may be NaN or ±Inf, are given in binary64 and rounded to the " +
				"precision of the computation; int, uint and bool elements (0 or 1) must fit their type."},
		infer: inferConstant, uses: usesElements, gradient: zero,
	},
	{
		OpInfo: OpInfo{Op: OpIota, Name: "iota", Class: ClassSource,
			Attributes: "type (float, int or uint); axes: the one axis",
			Meaning:    "The index of each element along the axis: 0, 1, 2, …"},
		infer: inferIota, uses: usesAxes, gradient: zero,
	},
	{
		OpInfo: OpInfo{Op: OpRandomBits, Name: "random_bits", Class: ClassSource, Arity: 1,
			Operands: "uint[2] (key)", Attributes: "type (uint, any shape)",
			Meaning: "Stateless random bits: element i (row-major, counted from 0) is the first word of " +
				"Threefry-2x32 with 20 rounds (Salmon et al. 2011) under the given key and the counter " +
				"(i, 0). Equal keys give equal bits on every device."},
		infer: inferRandomBits, gradient: zero,
	},

	unary(OpNeg, "neg", signed, "−x.",
		func(x float64) float64 { return -x }, func(x int64) int64 { return -x },
		ofX("−dy", func(_, _, dy Value) Value { return dy.Neg() })),
	unary(OpAbs, "abs", signed, "|x|; NaN stays NaN.",
		math.Abs, func(x int64) int64 { return max(x, -x) },
		ofX("dy·sign(x)", func(x, _, dy Value) Value { return dy.Mul(x.Sign()) })),
	unary(OpSign, "sign", signed, "−1, 0 or 1; sign(±0) = 0; NaN stays NaN.",
		sign, func(x int64) int64 { return min(max(x, -1), 1) }, zero),
	unary(OpSqrt, "sqrt", floats, "Square root, correctly rounded; NaN for x < 0.", math.Sqrt, nil,
		ofX("dy/(2·sqrt(x))", func(x, y, dy Value) Value { return dy.Mul(x.b.Const(0.5)).Div(y) })),
	unary(OpExp, "exp", floats, "eˣ.", math.Exp, nil,
		ofX("dy·eˣ", func(_, y, dy Value) Value { return dy.Mul(y) })),
	unary(OpExpm1, "expm1", floats, "eˣ − 1, accurate near 0.", math.Expm1, nil,
		ofX("dy·eˣ", func(x, _, dy Value) Value { return dy.Mul(x.Exp()) })),
	unary(OpLog, "log", floats,
		"Natural logarithm; log(0) = −Inf, NaN for x < 0.", math.Log, nil,
		ofX("dy/x", func(x, _, dy Value) Value { return dy.Div(x) })),
	unary(OpLog1p, "log1p", floats, "log(1 + x), accurate near 0.", math.Log1p, nil,
		ofX("dy/(1+x)", func(x, _, dy Value) Value { return dy.Div(x.Shift(1)) })),
	unary(OpTanh, "tanh", floats, "Hyperbolic tangent.", math.Tanh, nil,
		ofX("dy·(1−tanh²x)", func(x, y, dy Value) Value {
			return dy.Mul(x.b.Const(1).Sub(y.Square()))
		})),
	unary(OpFloor, "floor", floats,
		"The largest integer that is not larger than x; NaN and ±Inf stay.", math.Floor, nil, zero),
	unary(OpRound, "round", floats, "The nearest integer, ties to even; NaN and ±Inf stay. "+
		"The sign of a zero result is not defined.", math.RoundToEven, nil, zero),
	unary(OpLogb, "logb", floats, "The unbiased exponent, floor(log2|x|), computed exactly, also for "+
		"subnormal numbers. logb(0) = −Inf, logb(±Inf) = +Inf, NaN stays NaN.", math.Logb, nil, zero),
	{
		OpInfo: OpInfo{Op: OpIsFinite, Name: "is_finite", Class: ClassUnary, Arity: 1, Operands: "float",
			Meaning: "bool: false for NaN and ±Inf."},
		infer: inferIsFinite, gradient: zero,
		floats: func(x, _ float64) float64 { return truth[float64](x-x == 0) },
	},
	unary(OpNot, "not", logical, "Logical negation of a bool, bitwise complement of an integer.",
		nil, func(x int64) int64 { return ^x }, zero),
	unary(OpSin, "sin", floats, "Sine of x in radians; NaN for ±Inf.", math.Sin, nil,
		ofX("dy·cos(x)", func(x, _, dy Value) Value { return dy.Mul(x.Cos()) })),
	unary(OpCos, "cos", floats, "Cosine of x in radians; NaN for ±Inf.", math.Cos, nil,
		ofX("−dy·sin(x)", func(x, _, dy Value) Value { return dy.Mul(x.Sin()).Neg() })),

	binary(OpAdd, "add", numbers, "x + y; integers wrap.",
		func(x, y float64) float64 { return x + y }, func(x, y int64) int64 { return x + y },
		ofXY("dy to both", func(_, _, _, dz Value) (Value, Value) { return dz, dz })),
	binary(OpSub, "sub", numbers, "x − y; integers wrap.",
		func(x, y float64) float64 { return x - y }, func(x, y int64) int64 { return x - y },
		ofXY("dy, −dy", func(_, y, _, dz Value) (Value, Value) {
			return dz, dz.unrepeat(y.Type()).Neg()
		})),
	binary(OpMul, "mul", numbers, "x·y; integers wrap.",
		func(x, y float64) float64 { return x * y }, func(x, y int64) int64 { return x * y },
		ofXY("dy·y, dy·x", func(x, y, _, dz Value) (Value, Value) { return dz.Mul(y), dz.Mul(x) })),
	binary(OpDiv, "div", floats, "x/y, correctly rounded, IEEE rules for zero and Inf. Floats only.",
		func(x, y float64) float64 { return x / y }, nil,
		ofXY("dy/y, −dy·x/y²", func(x, y, z, dz Value) (Value, Value) {
			return dz.Div(y), divisorGradient(x, y, z, dz)
		})),
	binary(OpPow, "pow", floats, "x to the power y; IEEE 754 pow.", math.Pow, nil,
		ofXY("dy·y·x^(y−1), dy·x^y·log x", func(x, y, z, dz Value) (Value, Value) {
			return dz.Mul(y.Mul(lowerPower(x, y))), dz.Mul(z.Mul(x.Log()))
		})),
	binary(OpMax, "max", numbers,
		"The larger operand; NaN if either is NaN. The sign of a zero result is not defined.",
		func(x, y float64) float64 { return max(x, y) }, func(x, y int64) int64 { return max(x, y) },
		ofXY("dy to the larger operand; half to each when equal",
			func(x, y, _, dz Value) (Value, Value) {
				return dz.where(x.Gt(y), x, y), dz.where(y.Gt(x), y, x)
			})),
	binary(OpMin, "min", numbers,
		"The smaller operand; NaN if either is NaN. The sign of a zero result is not defined.",
		func(x, y float64) float64 { return min(x, y) }, func(x, y int64) int64 { return min(x, y) },
		ofXY("dy to the smaller operand; half to each when equal",
			func(x, y, _, dz Value) (Value, Value) {
				return dz.where(x.Lt(y), x, y), dz.where(y.Lt(x), y, x)
			})),
	binary(OpLdexp, "ldexp", floats,
		"x·2ⁿ, exact unless the result is subnormal or overflows; the "+
			"exponent n is a float holding an integer in −300…300. NaN if n is NaN.", ldexp, nil,
		gradient{text: "dy·2ⁿ to x, none to n", operands: []int{0},
			rule: func(_ *Node, x []Value, _, dy Value) []Value { return []Value{dy.Ldexp(x[1])} }}),
	binary(OpAnd, "and", logical, "Logical or bitwise and.",
		nil, func(x, y int64) int64 { return x & y }, zero),
	binary(OpOr, "or", logical, "Logical or bitwise or.",
		nil, func(x, y int64) int64 { return x | y }, zero),
	binary(OpXor, "xor", logical, "Logical or bitwise exclusive or.",
		nil, func(x, y int64) int64 { return x ^ y }, zero),
	binary(OpShl, "shl", integers, "Shift left by y bits, filling with zeros. 0 ≤ y < 32.",
		nil, func(x, y int64) int64 { return x << (y & 31) }, zero),
	binary(OpShr, "shr", integers, "Shift right by y bits, filling with zeros for uint and with the "+
		"sign for int. 0 ≤ y < 32.",
		nil, func(x, y int64) int64 { return x >> (y & 31) }, zero),
	{
		OpInfo: OpInfo{Op: OpClamp, Name: "clamp", Class: ClassElementwise, Arity: 3,
			Operands: "float, float scalar, float scalar",
			Meaning: "min(max(x, lo), hi) for every x that is not NaN, ±Inf included; lo ≤ hi, neither " +
				"NaN. Where x is NaN, the result is either NaN or some number in [lo, hi]; which one is " +
				"not defined. A NaN that matters must therefore reach the output through another factor, " +
				"such as a scale. `max` and `min` propagate NaN, at a higher cost. The sign of a zero " +
				"result is not defined."},
		infer: inferClamp,
		gradient: gradient{
			text: "dy to x where lo ≤ x ≤ hi and zero elsewhere, also where x is NaN; none to lo and hi",
			// y equals x exactly where x is within the bounds; NaN equals nothing.
			rule: func(_ *Node, x []Value, y, dy Value) []Value {
				return []Value{x[0].Eq(y).Select(dy, y.b.Const(0))}
			},
			operands: []int{0}},
	},

	compare(OpEq, "eq", anyType, "bool: x = y; false if either is NaN; −0 = +0.",
		func(x, y float64) bool { return x == y }, func(x, y int64) bool { return x == y }),
	compare(OpNe, "ne", anyType, "bool: x ≠ y; true if either is NaN.",
		func(x, y float64) bool { return x != y }, func(x, y int64) bool { return x != y }),
	compare(OpLt, "lt", numbers, "bool: x < y; false if either is NaN.",
		func(x, y float64) bool { return x < y }, func(x, y int64) bool { return x < y }),
	compare(OpLe, "le", numbers, "bool: x ≤ y; false if either is NaN.",
		func(x, y float64) bool { return x <= y }, func(x, y int64) bool { return x <= y }),
	compare(OpGt, "gt", numbers, "bool: x > y; false if either is NaN.",
		func(x, y float64) bool { return x > y }, func(x, y int64) bool { return x > y }),
	compare(OpGe, "ge", numbers, "bool: x ≥ y; false if either is NaN.",
		func(x, y float64) bool { return x >= y }, func(x, y int64) bool { return x >= y }),

	{
		OpInfo: OpInfo{Op: OpSelect, Name: "select", Class: ClassElementwise, Arity: 3,
			Operands: "bool, T, T",
			Meaning: "x where the condition holds, y elsewhere; the operand that is not taken has no " +
				"effect, even if it is NaN. All three operands follow the elementwise shape rule."},
		infer: inferSelect,
		gradient: gradient{text: "dy to the operand taken", operands: []int{1, 2},
			rule: func(_ *Node, x []Value, _, dy Value) []Value {
				zero := dy.b.Const(0)
				return []Value{{}, x[0].Select(dy, zero), x[0].Select(zero, dy)}
			}},
	},
	{
		OpInfo: OpInfo{Op: OpConvert, Name: "convert", Class: ClassElementwise, Arity: 1,
			Operands: "any", Attributes: "type (element type)",
			Meaning: "The same number in another element type. Float to integer rounds toward zero " +
				"(undefined outside the range of the type); bool converts to 0 and 1; a number converts " +
				"to bool as x ≠ 0; int and uint convert modulo 2³²."},
		infer: inferConvert,
		gradient: ofX("dy if both types are float, else zero",
			func(_, _, dy Value) Value { return dy }),
	},
	{
		OpInfo: OpInfo{Op: OpBitcast, Name: "bitcast", Class: ClassElementwise, Arity: 1,
			Operands: "float, int, uint", Attributes: "type (element type)",
			Meaning: "The same 32 bits read as another type; a float is rounded to binary32 first."},
		infer: inferBitcast, gradient: zero,
	},

	{
		OpInfo: OpInfo{Op: OpReshape, Name: "reshape", Class: ClassShape, Arity: 1,
			Operands: "any", Attributes: "type (shape)",
			Meaning: "The same elements in row-major order under another shape of the same size."},
		infer: inferReshape,
		gradient: ofX("dy in the shape of the operand",
			func(x, _, dy Value) Value { return dy.Reshape(x.Shape()...) }),
	},
	{
		OpInfo: OpInfo{Op: OpTranspose, Name: "transpose", Class: ClassShape, Arity: 1,
			Operands: "any", Attributes: "axes: a permutation",
			Meaning: "Axis i of the result is axis axes[i] of the operand."},
		infer: inferTranspose, uses: usesAxes,
		gradient: gradient{text: "dy transposed back",
			rule: func(n *Node, _ []Value, _, dy Value) []Value {
				return []Value{dy.Transpose(inverse(n.Attr.Axes)...)}
			}},
	},
	{
		OpInfo: OpInfo{Op: OpBroadcast, Name: "broadcast", Class: ClassShape, Arity: 1, Operands: "any",
			Attributes: "type (shape); axes: for each axis of the operand, its axis in the result, " +
				"increasing",
			Meaning: "Repeats the operand: each of its axes has the size of its axis in the result, " +
				"or 1."},
		infer: inferBroadcast, uses: usesAxes,
		gradient: gradient{text: "dy summed over repeated axes", rule: broadcastGradient},
	},
	{
		OpInfo: OpInfo{Op: OpSlice, Name: "slice", Class: ClassShape, Arity: 1, Operands: "any",
			Attributes: "start, limit, stride: one each per axis",
			Meaning: "Elements start, start+stride, … below limit on each axis. " +
				"0 ≤ start < limit ≤ size, stride ≥ 1."},
		infer: inferSlice, uses: usesRange,
		gradient: gradient{text: "dy at the positions of the slice, zero elsewhere", rule: sliceGradient},
	},
	{
		OpInfo: OpInfo{Op: OpConcatenate, Name: "concatenate", Class: ClassShape, Arity: -1,
			Operands: "any, all equal", Attributes: "axes: the one axis to join along",
			Meaning: "The operands one after the other along the axis; other axes are equal."},
		infer: inferConcatenate, uses: usesAxes,
		gradient: gradient{text: "slices of dy", rule: concatenateGradient},
	},

	reduction(OpReduceSum, "reduce_sum", "Sum over the axes, which are removed. "+
		"The order of summation is not defined.",
		gradient{text: "dy repeated", rule: func(n *Node, x []Value, _, dy Value) []Value {
			return []Value{dy.unreduce(x[0], n.Attr.Axes)}
		}}),
	reduction(OpReduceMax, "reduce_max",
		"Maximum over the axes, which are removed; NaN if any element is NaN.",
		gradient{text: "dy to the elements that equal the maximum, divided by their number",
			rule: extremeGradient}),
	reduction(OpReduceMin, "reduce_min",
		"Minimum over the axes, which are removed; NaN if any element is NaN.",
		gradient{text: "dy to the elements that equal the minimum, divided by their number",
			rule: extremeGradient}),

	{
		OpInfo: OpInfo{Op: OpDot, Name: "dot", Class: ClassLinear, Arity: 2, Operands: "float",
			Attributes: "lhs_contract and rhs_contract: pairs of axes to sum over; " +
				"lhs_batch and rhs_batch: pairs of batch axes",
			Meaning: "General product: sums over the contracted pairs. The two axes of a contracted or " +
				"batch pair have the same size. The result's axes are the batch axes in the given order, " +
				"then the remaining axes of the left operand, then those of the right. The order of " +
				"summation is not defined."},
		infer: inferDot, uses: usesPairs, work: dotWork,
		gradient: gradient{text: "the two transposed products", rule: dotGradient},
	},
	{
		OpInfo: OpInfo{Op: OpHadamard, Name: "hadamard", Class: ClassLinear, Arity: 1, Operands: "float",
			Attributes: "block: a power of two dividing the last axis",
			Meaning: "Each run of `block` elements along the last axis is multiplied by H, " +
				"H[i][j] = (−1)^popcount(i AND j)/√block: orthogonal, symmetric, its own inverse. " +
				"A non-finite element makes its block non-finite."},
		infer: inferHadamard, uses: usesBlock, work: hadamardWork,
		gradient: gradient{text: "hadamard of dy", rule: func(n *Node, _ []Value, _, dy Value) []Value {
			return []Value{dy.Hadamard(n.Attr.Block)}
		}},
	},

	{
		OpInfo: OpInfo{Op: OpStopGradient, Name: "stop_gradient", Class: ClassGradient, Arity: 1,
			Operands: "any", Meaning: "x; the reverse pass treats it as a constant."},
		infer: inferUnary(anyType), gradient: zero,
	},

	{
		OpInfo: OpInfo{Op: OpQR, Name: "qr", Class: ClassLinalg, Arity: 1,
			Operands: "float[…,m,n], m ≥ n",
			Meaning: "The m×n factor Q with orthonormal columns of the thin decomposition A = QR, for " +
				"each matrix of the last two axes. The signs of columns are not defined. A matrix with a " +
				"non-finite element gives NaN. Refresh programs only."},
		infer: inferQR, work: cubicWork, gradient: refused,
	},
	{
		OpInfo: OpInfo{Op: OpEighValues, Name: "eigh_values", Class: ClassLinalg, Arity: 1,
			Operands: "float[…,n,n], symmetric",
			Meaning: "Eigenvalues in ascending order, shape […,n]; only the lower triangle is read. " +
				"A matrix with a non-finite element there gives NaN. Refresh programs only."},
		infer: inferEighValues, work: cubicWork, gradient: refused,
	},
	{
		OpInfo: OpInfo{Op: OpEighVectors, Name: "eigh_vectors", Class: ClassLinalg, Arity: 1,
			Operands: "float[…,n,n], symmetric",
			Meaning: "Orthonormal eigenvectors as columns in the order of eigh_values. Signs are not " +
				"defined. Like eigh_values, it reads the lower triangle only and gives NaN for a " +
				"non-finite element there. Refresh programs only."},
		infer: inferEighVectors, work: cubicWork, gradient: refused,
	},
	{
		OpInfo: OpInfo{Op: OpSortColumns, Name: "sort_columns", Class: ClassLinalg, Arity: 2,
			Operands: "float[…,m,n], float[…,n]",
			Meaning: "The columns of each matrix in descending order of their keys, the second operand. " +
				"Columns with equal keys keep their order; columns whose keys are NaN come last. " +
				"Refresh programs only."},
		infer: inferSortColumns, gradient: refused,
	},

	{
		OpInfo: OpInfo{Op: OpNearest, Name: "nearest", Class: ClassTable, Arity: 2,
			Operands: "float[…], float[n]; or float[…,d], float[n,d]",
			Meaning: "int: for each element of x, or, for a table float[n,d], for each vector along the " +
				"last axis of x, which is removed: the index of the nearest row of the table, the second " +
				"operand. Distances are Euclidean; the lowest index wins a tie. A distance that is NaN " +
				"counts as infinite, and if all are infinite, the index is 0. If the distances of two " +
				"rows differ by rounding only, either may be taken."},
		infer: inferNearest, work: nearestWork, gradient: zero,
	},
	{
		OpInfo: OpInfo{Op: OpLookup, Name: "lookup", Class: ClassTable, Arity: 2,
			Operands: "int[…], float[n] or float[n,d]",
			Meaning: "The rows of the table, the second operand, with the given indices. The result has " +
				"the shape of the indices, followed by d for a table with two axes. An index below 0 " +
				"counts as 0, one above n−1 as n−1."},
		infer: inferLookup,
		gradient: gradient{text: "scatter_add of dy to the table, none to the indices",
			operands: []int{1},
			rule: func(_ *Node, x []Value, _, dy Value) []Value {
				return []Value{{}, dy.b.Apply(OpScatterAdd, Attr{}, x[1].Type(), x[0], dy)}
			}},
	},
	{
		OpInfo: OpInfo{Op: OpScatterAdd, Name: "scatter_add", Class: ClassTable, Arity: 2,
			Operands:   "int[…], float[…]; or int[…], float[…,d]",
			Attributes: "type (shape): [n] or [n,d]",
			Meaning: "A table that is zero, except that each element of the second operand, or each " +
				"vector of d elements along its last axis, is added to the row with its index. An index " +
				"below 0 counts as 0, one above n−1 as n−1. The order of summation is not defined."},
		infer: inferScatterAdd,
		gradient: gradient{text: "lookup of dy to the second operand, none to the indices",
			operands: []int{1},
			rule:     func(_ *Node, x []Value, _, dy Value) []Value { return []Value{{}, x[0].Lookup(dy)} }},
	},
	{
		OpInfo: OpInfo{Op: OpTopK, Name: "top_k", Class: ClassTable, Arity: 2,
			Operands: "float[…,d], int scalar",
			Meaning: "bool: whether an element is among the k largest along the last axis; k is the " +
				"second operand. Of equal elements the first count as larger, and NaN as larger than any " +
				"number. With k below 1 there are none, with k above d all."},
		infer: inferTopK, gradient: zero,
	},
	{
		OpInfo: OpInfo{Op: OpOrderStatistic, Name: "order_statistic", Class: ClassTable, Arity: 2,
			Operands: "float[…,d], int scalar",
			Meaning: "The element with index k, counted from 0, among the elements along the last axis in " +
				"ascending order; k is the second operand. The axis is removed. k below 0 counts as 0, " +
				"above d−1 as d−1. NaN if any element is NaN. The sign of a zero is not defined."},
		infer: inferOrderStatistic,
		gradient: gradient{text: "dy to the elements that equal the result, divided by their number",
			operands: []int{0},
			rule: func(n *Node, x []Value, y, dy Value) []Value {
				along := Node{Attr: Attr{Axes: []int{x[0].Type().Rank() - 1}}}
				return extremeGradient(&along, x, y, dy)
			}},
	},
}

// Iota returns a value of type t whose elements are their indices along axis.
func (b *Builder) Iota(t Type, axis int) Value {
	return b.Apply(OpIota, Attr{Axes: []int{axis}}, t)
}

// RandomBits returns a uint value of random bits in the given shape, generated from a uint[2] key;
// see [OpRandomBits].
func (b *Builder) RandomBits(key Value, shape ...int) Value {
	return b.Apply(OpRandomBits, Attr{}, Type{Uint, shape}, key)
}

// Neg returns −v.
func (v Value) Neg() Value { return v.unary(OpNeg) }

// Abs returns |v|.
func (v Value) Abs() Value { return v.unary(OpAbs) }

// Sign returns −1, 0 or 1.
func (v Value) Sign() Value { return v.unary(OpSign) }

// Sqrt returns the square root.
func (v Value) Sqrt() Value { return v.unary(OpSqrt) }

// Exp returns eᵛ.
func (v Value) Exp() Value { return v.unary(OpExp) }

// Expm1 returns eᵛ − 1.
func (v Value) Expm1() Value { return v.unary(OpExpm1) }

// Log returns the natural logarithm.
func (v Value) Log() Value { return v.unary(OpLog) }

// Log1p returns log(1 + v).
func (v Value) Log1p() Value { return v.unary(OpLog1p) }

// Tanh returns the hyperbolic tangent.
func (v Value) Tanh() Value { return v.unary(OpTanh) }

// Sin returns the sine of v radians.
func (v Value) Sin() Value { return v.unary(OpSin) }

// Cos returns the cosine of v radians.
func (v Value) Cos() Value { return v.unary(OpCos) }

// Floor rounds toward −∞.
func (v Value) Floor() Value { return v.unary(OpFloor) }

// Round rounds to the nearest integer, ties to even.
func (v Value) Round() Value { return v.unary(OpRound) }

// Logb returns the binary exponent floor(log2|v|), exactly.
func (v Value) Logb() Value { return v.unary(OpLogb) }

// IsFinite returns a bool: false for NaN and infinities.
func (v Value) IsFinite() Value { return v.unary(OpIsFinite) }

// Not returns the logical or bitwise negation.
func (v Value) Not() Value { return v.unary(OpNot) }

// StopGradient returns v, which the reverse pass then treats as a constant.
func (v Value) StopGradient() Value { return v.unary(OpStopGradient) }

// Add returns v + o.
func (v Value) Add(o Value) Value { return v.binary(OpAdd, o) }

// Sub returns v − o.
func (v Value) Sub(o Value) Value { return v.binary(OpSub, o) }

// Mul returns v·o, element by element.
func (v Value) Mul(o Value) Value { return v.binary(OpMul, o) }

// Div returns v/o.
func (v Value) Div(o Value) Value { return v.binary(OpDiv, o) }

// Pow returns v to the power o.
func (v Value) Pow(o Value) Value { return v.binary(OpPow, o) }

// Max returns the larger of v and o; NaN if either is NaN.
func (v Value) Max(o Value) Value { return v.binary(OpMax, o) }

// Min returns the smaller of v and o; NaN if either is NaN.
func (v Value) Min(o Value) Value { return v.binary(OpMin, o) }

// Ldexp returns v·2ᵒ for integers o.
func (v Value) Ldexp(o Value) Value { return v.binary(OpLdexp, o) }

// And returns the logical or bitwise and.
func (v Value) And(o Value) Value { return v.binary(OpAnd, o) }

// Or returns the logical or bitwise or.
func (v Value) Or(o Value) Value { return v.binary(OpOr, o) }

// Xor returns the logical or bitwise exclusive or.
func (v Value) Xor(o Value) Value { return v.binary(OpXor, o) }

// Shl shifts left by o bits.
func (v Value) Shl(o Value) Value { return v.binary(OpShl, o) }

// Shr shifts right by o bits.
func (v Value) Shr(o Value) Value { return v.binary(OpShr, o) }

// Eq returns v = o as a bool.
func (v Value) Eq(o Value) Value { return v.binary(OpEq, o) }

// Ne returns v ≠ o as a bool.
func (v Value) Ne(o Value) Value { return v.binary(OpNe, o) }

// Lt returns v < o as a bool.
func (v Value) Lt(o Value) Value { return v.binary(OpLt, o) }

// Le returns v ≤ o as a bool.
func (v Value) Le(o Value) Value { return v.binary(OpLe, o) }

// Gt returns v > o as a bool.
func (v Value) Gt(o Value) Value { return v.binary(OpGt, o) }

// Ge returns v ≥ o as a bool.
func (v Value) Ge(o Value) Value { return v.binary(OpGe, o) }

// Clamp limits v to [lo, hi], where lo and hi are scalars with lo ≤ hi. Where v is NaN the result
// is NaN or any number in [lo, hi]; v.Max(lo).Min(hi) propagates NaN, at a higher cost. A quantizer
// need not propagate it: a NaN makes its scale NaN, and thus all elements that share the scale. The
// gradient passes to v within the bounds; lo and hi get none.
func (v Value) Clamp(lo, hi Value) Value {
	return v.Builder().Apply(OpClamp, Attr{}, Type{}, v, lo, hi)
}

// Select returns x where v, a bool, is true, and y elsewhere.
func (v Value) Select(x, y Value) Value {
	return v.Builder().Apply(OpSelect, Attr{}, Type{}, v, x, y)
}

// Convert converts v to another element type.
func (v Value) Convert(t DType) Value {
	return v.Builder().Apply(OpConvert, Attr{}, Type{DType: t}, v)
}

// Bitcast reinterprets the 32 bits of each element as another element type.
func (v Value) Bitcast(t DType) Value {
	return v.Builder().Apply(OpBitcast, Attr{}, Type{DType: t}, v)
}

// Reshape returns the same elements, in row-major order, in another shape.
func (v Value) Reshape(shape ...int) Value {
	return v.Builder().Apply(OpReshape, Attr{}, Type{Shape: shape}, v)
}

// Transpose permutes the axes: axis i of the result is axis perm[i] of v.
func (v Value) Transpose(perm ...int) Value {
	return v.Builder().Apply(OpTranspose, Attr{Axes: perm}, Type{}, v)
}

// Broadcast repeats v to the given shape; axes names, for each axis of v, its axis in the result. A
// scalar needs no axes, nor does a value with as many axes as the result.
func (v Value) Broadcast(shape, axes []int) Value {
	if rank := v.Type().Rank(); axes == nil && rank == len(shape) {
		axes = OtherAxes(rank)
	}
	return v.Builder().Apply(OpBroadcast, Attr{Axes: axes}, Type{Shape: shape}, v)
}

// Slice returns the elements start, start+stride, … below limit along each axis.
func (v Value) Slice(start, limit, stride []int) Value {
	return v.Builder().Apply(OpSlice, Attr{Start: start, Limit: limit, Stride: stride}, Type{}, v)
}

// Concatenate joins v and others along an axis.
func (v Value) Concatenate(axis int, others ...Value) Value {
	args := append([]Value{v}, others...)
	return v.Builder().Apply(OpConcatenate, Attr{Axes: []int{axis}}, Type{}, args...)
}

// ReduceSum sums over the axes (increasing), which are removed from the shape.
func (v Value) ReduceSum(axes ...int) Value { return v.reduce(OpReduceSum, axes) }

// ReduceMax takes the maximum over the axes (increasing), which are removed from the shape.
func (v Value) ReduceMax(axes ...int) Value { return v.reduce(OpReduceMax, axes) }

// ReduceMin takes the minimum over the axes (increasing), which are removed from the shape.
func (v Value) ReduceMin(axes ...int) Value { return v.reduce(OpReduceMin, axes) }

// Dot returns the general product; see [OpDot].
func (v Value) Dot(o Value, contract, batch [2][]int) Value {
	return v.Builder().Apply(OpDot, Attr{
		LhsContract: contract[0], RhsContract: contract[1],
		LhsBatch: batch[0], RhsBatch: batch[1],
	}, Type{}, v, o)
}

// Hadamard rotates each block of the last axis by the normalized Walsh–Hadamard
// matrix in natural order, which is its own inverse.
func (v Value) Hadamard(block int) Value {
	return v.Builder().Apply(OpHadamard, Attr{Block: block}, Type{}, v)
}

// QR returns the factor Q of the thin QR decomposition of the last two axes.
func (v Value) QR() Value { return v.unary(OpQR) }

// EighValues returns the eigenvalues of symmetric matrices, ascending.
func (v Value) EighValues() Value { return v.unary(OpEighValues) }

// EighVectors returns the eigenvectors of symmetric matrices, as columns.
func (v Value) EighVectors() Value { return v.unary(OpEighVectors) }

// SortColumns sorts the columns of matrices in descending order of keys, which has one
// key for each column.
func (v Value) SortColumns(keys Value) Value { return v.binary(OpSortColumns, keys) }

// Nearest returns, as an int, the index of the table row nearest to each element of v, for a table
// of type float[n], or to each run of d elements along the last axis of v, for a table of type
// float[n,d]; see [OpNearest].
func (v Value) Nearest(table Value) Value { return v.binary(OpNearest, table) }

// Lookup returns the row of a table, float[n] or float[n,d], for each index in v, an int; see
// [OpLookup].
func (v Value) Lookup(table Value) Value { return v.binary(OpLookup, table) }

// ScatterAdd returns a table of n rows, initially zero, to which values are added. v, of type int,
// gives the row for each element of values or, if values has one axis more than v, for each vector
// along its last axis. With it one can count and sum the vectors that are assigned to each row of a
// codebook; see [OpScatterAdd].
func (v Value) ScatterAdd(values Value, n int) Value {
	shape := []int{n}
	if rank := v.Type().Rank(); values.Type().Rank() > rank {
		shape = append(shape, values.lastDim())
	}
	return v.Builder().Apply(OpScatterAdd, Attr{}, FloatType(shape...), v, values)
}

// TopK returns a bool mask of the k largest elements along the last axis. k is an int scalar; see
// [OpTopK].
func (v Value) TopK(k Value) Value { return v.binary(OpTopK, k) }

// OrderStatistic sorts the elements along the last axis in ascending order and returns the element
// at index k, an int scalar that counts from 0; the axis is dropped. See [OpOrderStatistic] and
// [Value.QuantileRow].
func (v Value) OrderStatistic(k Value) Value { return v.binary(OpOrderStatistic, k) }
