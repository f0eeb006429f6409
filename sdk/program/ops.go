package program

// The table below is the definition of the language. Package reference
// executes it, the host lowers it, and docs/ops.md is generated from it.
//
// "Elementwise" operands have equal rank, or one of them is a scalar; axes are
// equal, or 1 in one operand, which is then repeated along the other. There is no
// other implicit broadcasting.

//go:generate go run ./internal/opsdoc -out ../../docs/ops.md

const none = "zero"

var opTable = []OpInfo{
	{OpConstant, "constant", ClassSource, 0, "", "type; floats or ints: one element, or all elements in row-major order",
		"A value known when the program is built. One element fills the whole shape. Float elements, NaN and ±Inf among them, are given in binary64 and rounded to the precision of the computation; int, uint and bool elements (0 or 1) must fit their type.", none},
	{OpIota, "iota", ClassSource, 0, "", "type (float, int or uint); axes: the one axis",
		"The index of each element along the axis: 0, 1, 2, …", none},
	{OpRandomBits, "random_bits", ClassSource, 1, "uint[2] (key)", "type (uint, any shape)",
		"Stateless random bits: element i (row-major, counted from 0) is the first word of Threefry-2x32 with 20 rounds (Salmon et al. 2011) under the given key and the counter (i, 0). Equal keys give equal bits on every device.", none},

	{OpNeg, "neg", ClassUnary, 1, "float, int", "", "−x.", "−dy"},
	{OpAbs, "abs", ClassUnary, 1, "float, int", "", "|x|; NaN stays NaN.", "dy·sign(x)"},
	{OpSign, "sign", ClassUnary, 1, "float, int", "", "−1, 0 or 1; sign(±0) = 0; NaN stays NaN.", none},
	{OpSqrt, "sqrt", ClassUnary, 1, "float", "", "Square root, correctly rounded; NaN for x < 0.", "dy/(2·sqrt(x))"},
	{OpExp, "exp", ClassUnary, 1, "float", "", "eˣ.", "dy·eˣ"},
	{OpExpm1, "expm1", ClassUnary, 1, "float", "", "eˣ − 1, accurate near 0.", "dy·eˣ"},
	{OpLog, "log", ClassUnary, 1, "float", "", "Natural logarithm; log(0) = −Inf, NaN for x < 0.", "dy/x"},
	{OpLog1p, "log1p", ClassUnary, 1, "float", "", "log(1 + x), accurate near 0.", "dy/(1+x)"},
	{OpTanh, "tanh", ClassUnary, 1, "float", "", "Hyperbolic tangent.", "dy·(1−tanh²x)"},
	{OpFloor, "floor", ClassUnary, 1, "float", "", "The largest integer not above x; NaN and ±Inf stay.", none},
	{OpRound, "round", ClassUnary, 1, "float", "", "The nearest integer, ties to even; NaN and ±Inf stay. The sign of a zero result is not defined.", none},
	{OpLogb, "logb", ClassUnary, 1, "float", "", "floor(log2|x|) taken exactly from the representation: the unbiased exponent, also of subnormal numbers. logb(0) = −Inf, logb(±Inf) = +Inf, NaN stays NaN.", none},
	{OpIsFinite, "is_finite", ClassUnary, 1, "float", "", "bool: false for NaN and ±Inf.", none},
	{OpNot, "not", ClassUnary, 1, "bool, int, uint", "", "Logical negation of a bool, bitwise complement of an integer.", none},

	{OpAdd, "add", ClassBinary, 2, "float, int, uint", "", "x + y; integers wrap.", "dy to both"},
	{OpSub, "sub", ClassBinary, 2, "float, int, uint", "", "x − y; integers wrap.", "dy, −dy"},
	{OpMul, "mul", ClassBinary, 2, "float, int, uint", "", "x·y; integers wrap.", "dy·y, dy·x"},
	{OpDiv, "div", ClassBinary, 2, "float", "", "x/y, correctly rounded, IEEE rules for zero and Inf. Floats only.", "dy/y, −dy·x/y²"},
	{OpPow, "pow", ClassBinary, 2, "float", "", "x to the power y; IEEE 754 pow.", "dy·y·x^(y−1), dy·x^y·log x"},
	{OpMax, "max", ClassBinary, 2, "float, int, uint", "", "The larger operand; NaN if either is NaN. The sign of a zero result is not defined.", "dy to the larger operand; half to each when equal"},
	{OpMin, "min", ClassBinary, 2, "float, int, uint", "", "The smaller operand; NaN if either is NaN. The sign of a zero result is not defined.", "dy to the smaller operand; half to each when equal"},
	{OpLdexp, "ldexp", ClassBinary, 2, "float", "", "x·2ⁿ, exact unless the result is subnormal or overflows; the exponent n is a float holding an integer in −300…300. NaN if n is NaN.", "dy·2ⁿ to x, none to n"},
	{OpAnd, "and", ClassBinary, 2, "bool, int, uint", "", "Logical or bitwise and.", none},
	{OpOr, "or", ClassBinary, 2, "bool, int, uint", "", "Logical or bitwise or.", none},
	{OpXor, "xor", ClassBinary, 2, "bool, int, uint", "", "Logical or bitwise exclusive or.", none},
	{OpShl, "shl", ClassBinary, 2, "int, uint", "", "Shift left by y bits, filling with zeros. 0 ≤ y < 32.", none},
	{OpShr, "shr", ClassBinary, 2, "int, uint", "", "Shift right by y bits, filling with zeros for uint and with the sign for int. 0 ≤ y < 32.", none},
	{OpClamp, "clamp", ClassElementwise, 3, "float, float scalar, float scalar", "", "min(max(x, lo), hi) for every x that is a number, ±Inf included; lo ≤ hi, both numbers. Where x is NaN the result is NaN or any number in [lo, hi], which of them is not defined: NaN that matters must reach the output by another factor, such as a scale. `max` and `min` are the strict form, which costs more. The sign of a zero result is not defined.", "dy to x where lo ≤ x ≤ hi and zero elsewhere, also where x is NaN; none to lo and hi"},

	{OpEq, "eq", ClassCompare, 2, "float, int, uint, bool", "", "bool: x = y; false if either is NaN; −0 = +0.", none},
	{OpNe, "ne", ClassCompare, 2, "float, int, uint, bool", "", "bool: x ≠ y; true if either is NaN.", none},
	{OpLt, "lt", ClassCompare, 2, "float, int, uint", "", "bool: x < y; false if either is NaN.", none},
	{OpLe, "le", ClassCompare, 2, "float, int, uint", "", "bool: x ≤ y; false if either is NaN.", none},
	{OpGt, "gt", ClassCompare, 2, "float, int, uint", "", "bool: x > y; false if either is NaN.", none},
	{OpGe, "ge", ClassCompare, 2, "float, int, uint", "", "bool: x ≥ y; false if either is NaN.", none},

	{OpSelect, "select", ClassElementwise, 3, "bool, T, T", "", "x where the condition holds, y elsewhere; the value not taken never matters, even if it is NaN. All three operands follow the elementwise shape rule.", "dy to the operand taken"},
	{OpConvert, "convert", ClassElementwise, 1, "any", "type (element type)", "The same number in another element type. Float to integer rounds toward zero (outside the range: undefined); bool converts to 0 and 1; a number converts to bool as x ≠ 0; int and uint convert modulo 2³².", "dy if both are float, else zero"},
	{OpBitcast, "bitcast", ClassElementwise, 1, "float, int, uint", "type (element type)", "The same 32 bits read as another type; a float is rounded to binary32 first.", none},

	{OpReshape, "reshape", ClassShape, 1, "any", "type (shape)", "The same elements in row-major order under another shape of the same size.", "reshaped dy"},
	{OpTranspose, "transpose", ClassShape, 1, "any", "axes: a permutation", "Axis i of the result is axis axes[i] of the operand.", "dy transposed back"},
	{OpBroadcast, "broadcast", ClassShape, 1, "any", "type (shape); axes: for each axis of the operand, its axis in the result, increasing", "Repeats the operand: operand axes have the size of their result axis, or 1.", "dy summed over repeated axes"},
	{OpSlice, "slice", ClassShape, 1, "any", "start, limit, stride: one each per axis", "Elements start, start+stride, … below limit on each axis. 0 ≤ start < limit ≤ size, stride ≥ 1.", "dy put back in its place among zeros"},
	{OpConcatenate, "concatenate", ClassShape, -1, "any, all equal", "axes: the one axis to join along", "The operands one after the other along the axis; other axes are equal.", "slices of dy"},

	{OpReduceSum, "reduce_sum", ClassReduce, 1, "float, int, uint", "axes: increasing", "Sum over the axes, which disappear. The order of summation is not defined.", "dy repeated"},
	{OpReduceMax, "reduce_max", ClassReduce, 1, "float, int, uint", "axes: increasing", "Maximum over the axes; NaN if any element is NaN.", "dy to the elements that equal the maximum, divided by their number"},
	{OpReduceMin, "reduce_min", ClassReduce, 1, "float, int, uint", "axes: increasing", "Minimum over the axes; NaN if any element is NaN.", "dy to the elements that equal the minimum, divided by their number"},

	{OpDot, "dot", ClassLinear, 2, "float", "lhs_contract and rhs_contract: pairs of axes to sum over; lhs_batch and rhs_batch: pairs of axes to keep in step", "General product: sums over the contracted pairs, whose axes are equal in size, as are those of batch pairs. The result's axes are the batch axes in the given order, then the remaining axes of the left operand, then those of the right. The order of summation is not defined.", "the two transposed products"},
	{OpHadamard, "hadamard", ClassLinear, 1, "float", "block: a power of two dividing the last axis", "Each run of `block` elements along the last axis is multiplied by H, H[i][j] = (−1)^popcount(i AND j)/√block: orthogonal, symmetric, its own inverse. A non-finite element makes its block non-finite.", "hadamard of dy"},

	{OpStopGradient, "stop_gradient", ClassGradient, 1, "any", "", "x; the reverse pass treats it as a constant.", none},

	{OpQR, "qr", ClassLinalg, 1, "float[…,m,n], m ≥ n", "", "The m×n factor Q with orthonormal columns of the thin decomposition A = QR, for each matrix of the last two axes. The signs of columns are not defined. A matrix with a non-finite element gives NaN. Refresh programs only.", "an error"},
	{OpEighValues, "eigh_values", ClassLinalg, 1, "float[…,n,n], symmetric", "", "Eigenvalues in ascending order, shape […,n]; only the lower triangle is read. A matrix with a non-finite element there gives NaN. Refresh programs only.", "an error"},
	{OpEighVectors, "eigh_vectors", ClassLinalg, 1, "float[…,n,n], symmetric", "", "Orthonormal eigenvectors as columns in the order of eigh_values. Signs are not defined. Like eigh_values, it reads the lower triangle only and gives NaN for a non-finite element there. Refresh programs only.", "an error"},
	{OpSortColumns, "sort_columns", ClassLinalg, 2, "float[…,m,n], float[…,n]", "", "The columns of each matrix in the descending order of their keys, the second operand. Columns with equal keys keep their order; those whose keys are NaN come last. Refresh programs only.", "an error"},
}
