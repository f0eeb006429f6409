package program

// This file defines the language: the numbers of the operations, the table that defines them, and
// the methods of [Value] that write them. Package reference implements the table, autodiff has its
// gradients, executors of the host lower it, and docs/reference/operations.md and the enumeration of the wire
// format are generated from it.
//
// Elementwise operands have equal rank, or one of them is a scalar; each axis has equal
// sizes, or size 1 in one operand, which is then repeated along it. There is no other
// implicit broadcasting.

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

const zero = "zero" // the gradient of piecewise constant operations

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
	{OpInfo: OpInfo{OpConstant, "constant", ClassSource, 0, "", "type; floats or ints: one element, or all elements in row-major order", "A value known when the program is built. One element fills the whole shape. Float elements, NaN and ±Inf among them, are given in binary64 and rounded to the precision of the computation; int, uint and bool elements (0 or 1) must fit their type.", zero},
		infer: inferConstant, uses: usesElements},
	{OpInfo: OpInfo{OpIota, "iota", ClassSource, 0, "", "type (float, int or uint); axes: the one axis", "The index of each element along the axis: 0, 1, 2, …", zero},
		infer: inferIota, uses: usesAxes},
	{OpInfo: OpInfo{OpRandomBits, "random_bits", ClassSource, 1, "uint[2] (key)", "type (uint, any shape)", "Stateless random bits: element i (row-major, counted from 0) is the first word of Threefry-2x32 with 20 rounds (Salmon et al. 2011) under the given key and the counter (i, 0). Equal keys give equal bits on every device.", zero},
		infer: inferRandomBits},

	unary(OpNeg, "neg", signed, "−x.", "−dy"),
	unary(OpAbs, "abs", signed, "|x|; NaN stays NaN.", "dy·sign(x)"),
	unary(OpSign, "sign", signed, "−1, 0 or 1; sign(±0) = 0; NaN stays NaN.", zero),
	unary(OpSqrt, "sqrt", floats, "Square root, correctly rounded; NaN for x < 0.", "dy/(2·sqrt(x))"),
	approximate(unary(OpExp, "exp", floats, "eˣ.", "dy·eˣ")),
	approximate(unary(OpExpm1, "expm1", floats, "eˣ − 1, accurate near 0.", "dy·eˣ")),
	approximate(unary(OpLog, "log", floats, "Natural logarithm; log(0) = −Inf, NaN for x < 0.", "dy/x")),
	approximate(unary(OpLog1p, "log1p", floats, "log(1 + x), accurate near 0.", "dy/(1+x)")),
	approximate(unary(OpTanh, "tanh", floats, "Hyperbolic tangent.", "dy·(1−tanh²x)")),
	unary(OpFloor, "floor", floats, "The largest integer not above x; NaN and ±Inf stay.", zero),
	unary(OpRound, "round", floats, "The nearest integer, ties to even; NaN and ±Inf stay. The sign of a zero result is not defined.", zero),
	unary(OpLogb, "logb", floats, "floor(log2|x|) taken exactly from the representation: the unbiased exponent, also of subnormal numbers. logb(0) = −Inf, logb(±Inf) = +Inf, NaN stays NaN.", zero),
	{OpInfo: OpInfo{OpIsFinite, "is_finite", ClassUnary, 1, "float", "", "bool: false for NaN and ±Inf.", zero},
		infer: inferIsFinite},
	unary(OpNot, "not", logical, "Logical negation of a bool, bitwise complement of an integer.", zero),

	binary(OpAdd, "add", numbers, "x + y; integers wrap.", "dy to both"),
	binary(OpSub, "sub", numbers, "x − y; integers wrap.", "dy, −dy"),
	binary(OpMul, "mul", numbers, "x·y; integers wrap.", "dy·y, dy·x"),
	binary(OpDiv, "div", floats, "x/y, correctly rounded, IEEE rules for zero and Inf. Floats only.", "dy/y, −dy·x/y²"),
	approximate(binary(OpPow, "pow", floats, "x to the power y; IEEE 754 pow.", "dy·y·x^(y−1), dy·x^y·log x")),
	binary(OpMax, "max", numbers, "The larger operand; NaN if either is NaN. The sign of a zero result is not defined.", "dy to the larger operand; half to each when equal"),
	binary(OpMin, "min", numbers, "The smaller operand; NaN if either is NaN. The sign of a zero result is not defined.", "dy to the smaller operand; half to each when equal"),
	binary(OpLdexp, "ldexp", floats, "x·2ⁿ, exact unless the result is subnormal or overflows; the exponent n is a float holding an integer in −300…300. NaN if n is NaN.", "dy·2ⁿ to x, none to n"),
	binary(OpAnd, "and", logical, "Logical or bitwise and.", zero),
	binary(OpOr, "or", logical, "Logical or bitwise or.", zero),
	binary(OpXor, "xor", logical, "Logical or bitwise exclusive or.", zero),
	binary(OpShl, "shl", integers, "Shift left by y bits, filling with zeros. 0 ≤ y < 32.", zero),
	binary(OpShr, "shr", integers, "Shift right by y bits, filling with zeros for uint and with the sign for int. 0 ≤ y < 32.", zero),
	{OpInfo: OpInfo{OpClamp, "clamp", ClassElementwise, 3, "float, float scalar, float scalar", "", "min(max(x, lo), hi) for every x that is a number, ±Inf included; lo ≤ hi, both numbers. Where x is NaN the result is NaN or any number in [lo, hi], which of them is not defined: NaN that matters must reach the output by another factor, such as a scale. `max` and `min` are the strict form, which costs more. The sign of a zero result is not defined.", "dy to x where lo ≤ x ≤ hi and zero elsewhere, also where x is NaN; none to lo and hi"},
		infer: inferClamp},

	compare(OpEq, "eq", anyType, "bool: x = y; false if either is NaN; −0 = +0."),
	compare(OpNe, "ne", anyType, "bool: x ≠ y; true if either is NaN."),
	compare(OpLt, "lt", numbers, "bool: x < y; false if either is NaN."),
	compare(OpLe, "le", numbers, "bool: x ≤ y; false if either is NaN."),
	compare(OpGt, "gt", numbers, "bool: x > y; false if either is NaN."),
	compare(OpGe, "ge", numbers, "bool: x ≥ y; false if either is NaN."),

	{OpInfo: OpInfo{OpSelect, "select", ClassElementwise, 3, "bool, T, T", "", "x where the condition holds, y elsewhere; the value not taken never matters, even if it is NaN. All three operands follow the elementwise shape rule.", "dy to the operand taken"},
		infer: inferSelect},
	{OpInfo: OpInfo{OpConvert, "convert", ClassElementwise, 1, "any", "type (element type)", "The same number in another element type. Float to integer rounds toward zero (outside the range: undefined); bool converts to 0 and 1; a number converts to bool as x ≠ 0; int and uint convert modulo 2³².", "dy if both are float, else zero"},
		infer: inferConvert},
	{OpInfo: OpInfo{OpBitcast, "bitcast", ClassElementwise, 1, "float, int, uint", "type (element type)", "The same 32 bits read as another type; a float is rounded to binary32 first.", zero},
		infer: inferBitcast},

	{OpInfo: OpInfo{OpReshape, "reshape", ClassShape, 1, "any", "type (shape)", "The same elements in row-major order under another shape of the same size.", "reshaped dy"},
		infer: inferReshape},
	{OpInfo: OpInfo{OpTranspose, "transpose", ClassShape, 1, "any", "axes: a permutation", "Axis i of the result is axis axes[i] of the operand.", "dy transposed back"},
		infer: inferTranspose, uses: usesAxes},
	{OpInfo: OpInfo{OpBroadcast, "broadcast", ClassShape, 1, "any", "type (shape); axes: for each axis of the operand, its axis in the result, increasing", "Repeats the operand: operand axes have the size of their result axis, or 1.", "dy summed over repeated axes"},
		infer: inferBroadcast, uses: usesAxes},
	{OpInfo: OpInfo{OpSlice, "slice", ClassShape, 1, "any", "start, limit, stride: one each per axis", "Elements start, start+stride, … below limit on each axis. 0 ≤ start < limit ≤ size, stride ≥ 1.", "dy put back in its place among zeros"},
		infer: inferSlice, uses: usesRange},
	{OpInfo: OpInfo{OpConcatenate, "concatenate", ClassShape, -1, "any, all equal", "axes: the one axis to join along", "The operands one after the other along the axis; other axes are equal.", "slices of dy"},
		infer: inferConcatenate, uses: usesAxes},

	{OpInfo: OpInfo{OpReduceSum, "reduce_sum", ClassReduce, 1, "float, int, uint", "axes: increasing", "Sum over the axes, which disappear. The order of summation is not defined.", "dy repeated"},
		infer: inferReduce, uses: usesAxes, approximate: true},
	{OpInfo: OpInfo{OpReduceMax, "reduce_max", ClassReduce, 1, "float, int, uint", "axes: increasing", "Maximum over the axes; NaN if any element is NaN.", "dy to the elements that equal the maximum, divided by their number"},
		infer: inferReduce, uses: usesAxes},
	{OpInfo: OpInfo{OpReduceMin, "reduce_min", ClassReduce, 1, "float, int, uint", "axes: increasing", "Minimum over the axes; NaN if any element is NaN.", "dy to the elements that equal the minimum, divided by their number"},
		infer: inferReduce, uses: usesAxes},

	{OpInfo: OpInfo{OpDot, "dot", ClassLinear, 2, "float", "lhs_contract and rhs_contract: pairs of axes to sum over; lhs_batch and rhs_batch: pairs of axes to keep in step", "General product: sums over the contracted pairs, whose axes are equal in size, as are those of batch pairs. The result's axes are the batch axes in the given order, then the remaining axes of the left operand, then those of the right. The order of summation is not defined.", "the two transposed products"},
		infer: inferDot, uses: usesPairs, work: dotWork, approximate: true},
	{OpInfo: OpInfo{OpHadamard, "hadamard", ClassLinear, 1, "float", "block: a power of two dividing the last axis", "Each run of `block` elements along the last axis is multiplied by H, H[i][j] = (−1)^popcount(i AND j)/√block: orthogonal, symmetric, its own inverse. A non-finite element makes its block non-finite.", "hadamard of dy"},
		infer: inferHadamard, uses: usesBlock, work: hadamardWork, approximate: true},

	{OpInfo: OpInfo{OpStopGradient, "stop_gradient", ClassGradient, 1, "any", "", "x; the reverse pass treats it as a constant.", zero},
		infer: inferUnary(anyType)},

	{OpInfo: OpInfo{OpQR, "qr", ClassLinalg, 1, "float[…,m,n], m ≥ n", "", "The m×n factor Q with orthonormal columns of the thin decomposition A = QR, for each matrix of the last two axes. The signs of columns are not defined. A matrix with a non-finite element gives NaN. Refresh programs only.", "an error"},
		infer: inferQR, work: cubicWork},
	{OpInfo: OpInfo{OpEighValues, "eigh_values", ClassLinalg, 1, "float[…,n,n], symmetric", "", "Eigenvalues in ascending order, shape […,n]; only the lower triangle is read. A matrix with a non-finite element there gives NaN. Refresh programs only.", "an error"},
		infer: inferEighValues, work: cubicWork},
	{OpInfo: OpInfo{OpEighVectors, "eigh_vectors", ClassLinalg, 1, "float[…,n,n], symmetric", "", "Orthonormal eigenvectors as columns in the order of eigh_values. Signs are not defined. Like eigh_values, it reads the lower triangle only and gives NaN for a non-finite element there. Refresh programs only.", "an error"},
		infer: inferEighVectors, work: cubicWork},
	{OpInfo: OpInfo{OpSortColumns, "sort_columns", ClassLinalg, 2, "float[…,m,n], float[…,n]", "", "The columns of each matrix in the descending order of their keys, the second operand. Columns with equal keys keep their order; those whose keys are NaN come last. Refresh programs only.", "an error"},
		infer: inferSortColumns},

	{OpInfo: OpInfo{OpNearest, "nearest", ClassTable, 2, "float[…], float[n]; or float[…,d], float[n,d]", "", "int: the index of the row of the table, the second operand, that is nearest to each element of x, or to each run of d elements along its last axis, which disappears. Distances are Euclidean; of equal ones the lowest index counts. A distance that is NaN counts as infinite, and where all are infinite the index is 0. Which of two rows is taken whose distances differ by no more than rounding is not defined.", zero},
		infer: inferNearest, work: nearestWork, approximate: true},
	{OpInfo: OpInfo{OpLookup, "lookup", ClassTable, 2, "int[…], float[n] or float[n,d]", "", "The rows of the table, the second operand, with the given indices: the shape of the indices, and d behind it for a table of two axes. An index below 0 counts as 0, one above n−1 as n−1.", "scatter_add of dy to the table, none to the indices"},
		infer: inferLookup},
	{OpInfo: OpInfo{OpScatterAdd, "scatter_add", ClassTable, 2, "int[…], float[…]; or int[…], float[…,d]", "type (shape): [n] or [n,d]", "A table of zeros, to which each element, or each run of d elements along the last axis, of the second operand is added in the row with its index. An index below 0 counts as 0, one above n−1 as n−1. The order of summation is not defined.", "lookup of dy to the second operand, none to the indices"},
		infer: inferScatterAdd, approximate: true},
	{OpInfo: OpInfo{OpTopK, "top_k", ClassTable, 2, "float[…,d], int scalar", "", "bool: whether an element is one of the k largest along the last axis; k is the second operand. Of equal elements the first count as larger, and NaN as larger than any number. With k below 1 there are none, with k above d all.", zero},
		infer: inferTopK},
	{OpInfo: OpInfo{OpOrderStatistic, "order_statistic", ClassTable, 2, "float[…,d], int scalar", "", "The element at place k in the ascending order of the elements along the last axis, which disappears; k is the second operand and counts from 0. k below 0 counts as 0, above d−1 as d−1. NaN if any element is NaN. The sign of a zero is not defined.", "dy to the elements that equal the result, divided by their number"},
		infer: inferOrderStatistic},
}

// Iota returns a value of type t whose elements are their indices along axis.
func (b *Builder) Iota(t Type, axis int) Value {
	return b.Apply(OpIota, Attr{Axes: []int{axis}}, t)
}

// RandomBits returns a uint value of random bits in the given shape, made from a uint[2] key;
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

// Eq returns the bool v = o.
func (v Value) Eq(o Value) Value { return v.binary(OpEq, o) }

// Ne returns the bool v ≠ o.
func (v Value) Ne(o Value) Value { return v.binary(OpNe, o) }

// Lt returns the bool v < o.
func (v Value) Lt(o Value) Value { return v.binary(OpLt, o) }

// Le returns the bool v ≤ o.
func (v Value) Le(o Value) Value { return v.binary(OpLe, o) }

// Gt returns the bool v > o.
func (v Value) Gt(o Value) Value { return v.binary(OpGt, o) }

// Ge returns the bool v ≥ o.
func (v Value) Ge(o Value) Value { return v.binary(OpGe, o) }

// Clamp limits v to [lo, hi], where lo and hi are scalars with lo ≤ hi. Where v is NaN
// the result is NaN or any number in [lo, hi]; v.Max(lo).Min(hi) propagates NaN, at a
// higher cost. A quantizer need not: a NaN makes its scale NaN, and with it all elements
// that share the scale. The gradient passes to v within the bounds; lo and hi get none.
func (v Value) Clamp(lo, hi Value) Value {
	return v.builder().Apply(OpClamp, Attr{}, Type{}, v, lo, hi)
}

// Select returns x where v, a bool, is true, and y elsewhere.
func (v Value) Select(x, y Value) Value {
	return v.builder().Apply(OpSelect, Attr{}, Type{}, v, x, y)
}

// Convert returns the same number in another element type.
func (v Value) Convert(t DType) Value {
	return v.builder().Apply(OpConvert, Attr{}, Type{DType: t}, v)
}

// Bitcast reads the same 32 bits as another element type.
func (v Value) Bitcast(t DType) Value {
	return v.builder().Apply(OpBitcast, Attr{}, Type{DType: t}, v)
}

// Reshape returns the same elements, in row-major order, in another shape.
func (v Value) Reshape(shape ...int) Value {
	return v.builder().Apply(OpReshape, Attr{}, Type{Shape: shape}, v)
}

// Transpose permutes the axes: axis i of the result is axis perm[i] of v.
func (v Value) Transpose(perm ...int) Value {
	return v.builder().Apply(OpTranspose, Attr{Axes: perm}, Type{}, v)
}

// Broadcast repeats v to the given shape; axes names, for each axis of v, its
// axis in the result. A scalar needs no axes, nor does a value with as many axes as the
// result.
func (v Value) Broadcast(shape, axes []int) Value {
	if rank := v.Type().Rank(); axes == nil && rank == len(shape) {
		axes = OtherAxes(rank)
	}
	return v.builder().Apply(OpBroadcast, Attr{Axes: axes}, Type{Shape: shape}, v)
}

// Slice takes elements start, start+stride, … below limit on each axis.
func (v Value) Slice(start, limit, stride []int) Value {
	return v.builder().Apply(OpSlice, Attr{Start: start, Limit: limit, Stride: stride}, Type{}, v)
}

// Concatenate joins v and others along an axis.
func (v Value) Concatenate(axis int, others ...Value) Value {
	args := append([]Value{v}, others...)
	return v.builder().Apply(OpConcatenate, Attr{Axes: []int{axis}}, Type{}, args...)
}

// ReduceSum sums over the axes (increasing), which are removed from the shape.
func (v Value) ReduceSum(axes ...int) Value { return v.reduce(OpReduceSum, axes) }

// ReduceMax takes the maximum over the axes (increasing), which are removed from the shape.
func (v Value) ReduceMax(axes ...int) Value { return v.reduce(OpReduceMax, axes) }

// ReduceMin takes the minimum over the axes (increasing), which are removed from the shape.
func (v Value) ReduceMin(axes ...int) Value { return v.reduce(OpReduceMin, axes) }

// Dot returns the general product; see [OpDot].
func (v Value) Dot(o Value, contract, batch [2][]int) Value {
	return v.builder().Apply(OpDot, Attr{
		LhsContract: contract[0], RhsContract: contract[1],
		LhsBatch: batch[0], RhsBatch: batch[1],
	}, Type{}, v, o)
}

// Hadamard rotates each block of the last axis by the normalized Walsh–Hadamard
// matrix in natural order, which is its own inverse.
func (v Value) Hadamard(block int) Value {
	return v.builder().Apply(OpHadamard, Attr{Block: block}, Type{}, v)
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

// Nearest returns the index, an int, of the row of a table that is nearest to each element of v,
// for a table of type float[n], or to each run of d elements along the last axis of v, for one of
// type float[n,d]; see [OpNearest].
func (v Value) Nearest(table Value) Value { return v.binary(OpNearest, table) }

// Lookup returns the row of a table, float[n] or float[n,d], for each index in v, an int; see
// [OpLookup].
func (v Value) Lookup(table Value) Value { return v.binary(OpLookup, table) }

// ScatterAdd adds values to the rows of a table of n zero rows: each element, or, if the values
// have one axis more than v, each vector along their last axis, to the row given by the
// corresponding element of v, an int. With it one can count and sum the vectors that are assigned
// to each row of a codebook; see [OpScatterAdd].
func (v Value) ScatterAdd(values Value, n int) Value {
	shape := []int{n}
	if rank := v.Type().Rank(); values.Type().Rank() > rank {
		shape = append(shape, values.lastDim())
	}
	return v.builder().Apply(OpScatterAdd, Attr{}, FloatType(shape...), v, values)
}

// TopK returns a bool mask of the k largest elements along the last axis. k is an int scalar; see
// [OpTopK].
func (v Value) TopK(k Value) Value { return v.binary(OpTopK, k) }

// OrderStatistic returns the element at index k, an int scalar that counts from 0, of the elements
// along the last axis in ascending order; the axis is dropped. See [OpOrderStatistic] and
// [Value.QuantileRow].
func (v Value) OrderStatistic(k Value) Value { return v.binary(OpOrderStatistic, k) }
