package program_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

type (
	attr  = program.Attr
	types = []program.Type
)

// Short forms of types for the tables below.
func fl(shape ...int) program.Type { return program.FloatType(shape...) }
func in(shape ...int) program.Type { return program.Type{DType: program.Int, Shape: shape} }
func un(shape ...int) program.Type { return program.Type{DType: program.Uint, Shape: shape} }
func bo(shape ...int) program.Type { return program.Type{DType: program.Bool, Shape: shape} }

// single returns a program of one node that takes all inputs, a, b, …, in order.
func single(op program.Op, a attr, result program.Type, inputs types) *program.Program {
	p := &program.Program{Name: "p"}
	n := program.Node{Op: op, Attr: a, Type: result}
	for i, t := range inputs {
		p.Inputs = append(p.Inputs, program.Input{Name: string(rune('a' + i)), Type: t})
		n.Args = append(n.Args, program.ID(i))
	}
	p.Nodes = []program.Node{n}
	p.Outputs = []program.Output{{Name: "out", Value: program.ID(len(inputs))}}
	return p
}

var invalidNodes = []struct {
	op     program.Op
	attr   attr
	result program.Type
	inputs types
	want   string
}{
	// operations, operands, stated types
	{program.OpInvalid, attr{}, fl(), types{fl()}, "operation 0 does not exist"},
	{9999, attr{}, fl(), types{fl()}, "operation 9999 does not exist"},
	{program.OpNeg, attr{}, fl(), types{fl(), fl()}, "takes 1 operands, got 2"},
	{program.OpAdd, attr{}, fl(), types{fl()}, "takes 2 operands, got 1"},
	{program.OpSelect, attr{}, fl(), types{bo(), fl()}, "takes 3 operands, got 2"},
	{program.OpIota, attr{Axes: []int{0}}, fl(2), types{fl()}, "takes 0 operands, got 1"},
	{program.OpConcatenate, attr{Axes: []int{0}}, fl(2), nil, "takes at least one operand, got none"},
	{program.OpNeg, attr{}, fl(3), types{fl(2)},
		"states the type float[3], but its operands imply float[2]"},
	{program.OpNeg, attr{}, in(2), types{fl(2)},
		"states the type int[2], but its operands imply float[2]"},
	{program.OpLt, attr{}, fl(2), types{fl(2), fl(2)},
		"states the type float[2], but its operands imply bool[2]"},
	{program.OpNeg, attr{}, program.Type{}, types{fl(2)},
		"element type invalid does not exist: use float, int, uint or bool"},
	{program.OpNeg, attr{}, program.Type{DType: 77}, types{fl(2)},
		"element type dtype(77) does not exist: use float, int, uint or bool"},
	{program.OpNeg, attr{}, fl(0), types{fl(2)}, "axis 0 has 0 elements, want at least 1"},
	{program.OpReshape, attr{}, fl(-2, -2), types{fl(4)}, "axis 0 has -2 elements, want at least 1"},
	{program.OpReshape, attr{}, fl(1, 1, 1, 1, 1, 1, 1, 1, 1), types{fl(1)},
		"got 9 axes, want at most 8"},

	// attributes
	{program.OpNeg, attr{Axes: []int{0}}, fl(2), types{fl(2)}, "takes no attribute axes"},
	{program.OpNeg, attr{Block: 2}, fl(2), types{fl(2)}, "takes no attribute block"},
	{program.OpAdd, attr{Floats: []float64{1}}, fl(2), types{fl(2), fl(2)},
		"takes no attribute floats"},
	{program.OpIota, attr{Axes: []int{0}, Ints: []int64{1}}, in(2), nil, "takes no attribute ints"},
	{program.OpDot, attr{Axes: []int{0}}, fl(), types{fl(), fl()}, "takes no attribute axes"},
	{program.OpTranspose, attr{Axes: []int{0}, LhsBatch: []int{0}}, fl(2), types{fl(2)},
		"takes no attribute lhs_batch"},
	{program.OpReduceSum, attr{Axes: make([]int, 9)}, fl(), types{fl(2)},
		"attribute axes has 9 entries, want at most 8"},
	{program.OpDot, attr{RhsContract: make([]int, 100)}, fl(), types{fl(2), fl(2)},
		"attribute rhs_contract has 100 entries, want at most 8"},

	// sources
	{program.OpConstant, attr{}, fl(2), nil, "got 0 elements for float[2], want 1 or 2"},
	{program.OpConstant, attr{Floats: []float64{1, 2}}, fl(3), nil,
		"got 2 elements for float[3], want 1 or 3"},
	{program.OpConstant, attr{Ints: []int64{1}}, fl(), nil, "elements do not have the type float"},
	{program.OpConstant, attr{Floats: []float64{1}}, in(), nil, "elements do not have the type int"},
	{program.OpConstant, attr{Floats: []float64{1}, Ints: []int64{1}}, fl(), nil,
		"elements do not have the type float"},
	{program.OpConstant, attr{Ints: []int64{0, 1 << 31}}, in(2), nil,
		"element 1 is 2147483648, out of range for int"},
	{program.OpConstant, attr{Ints: []int64{-1<<31 - 1}}, in(), nil,
		"element 0 is -2147483649, out of range for int"},
	{program.OpConstant, attr{Ints: []int64{-1}}, un(), nil, "element 0 is -1, out of range for uint"},
	{program.OpConstant, attr{Ints: []int64{1 << 32}}, un(), nil,
		"element 0 is 4294967296, out of range for uint"},
	{program.OpConstant, attr{Ints: []int64{2}}, bo(), nil, "element 0 is 2, out of range for bool"},
	{program.OpIota, attr{Axes: []int{0}}, bo(2), nil, "takes float or int or uint, got bool[2]"},
	{program.OpIota, attr{}, fl(2), nil, "needs exactly one axis, got 0"},
	{program.OpIota, attr{Axes: []int{0, 1}}, fl(2, 2), nil, "needs exactly one axis, got 2"},
	{program.OpIota, attr{Axes: []int{1}}, fl(2), nil, "axis 1 does not exist: the rank is 1"},
	{program.OpIota, attr{Axes: []int{-1}}, fl(2), nil, "axis -1 does not exist: the rank is 1"},
	{program.OpIota, attr{Axes: []int{0}}, fl(), nil, "axis 0 does not exist: the rank is 0"},
	{program.OpRandomBits, attr{}, un(4), types{un(3)}, "takes a key of type uint[2], got uint[3]"},
	{program.OpRandomBits, attr{}, un(4), types{in(2)}, "takes a key of type uint[2], got int[2]"},
	{program.OpRandomBits, attr{}, in(4), types{un(2)}, "takes uint, got int[4]"},

	// elementwise shapes
	{program.OpAdd, attr{}, fl(2), types{fl(2), fl(3)}, "shapes [2] and [3] do not match: ranks " +
		"must be equal and axes equal or 1 (reshape or broadcast one operand)"},
	{program.OpMul, attr{}, fl(2, 3), types{fl(2, 3), fl(3)}, "shapes [2 3] and [3] do not match: " +
		"ranks must be equal and axes equal or 1 (reshape or broadcast one operand)"},
	{program.OpAdd, attr{}, fl(2), types{fl(2), in(2)},
		"operands have different element types: float[2] and int[2]"},
	{program.OpClamp, attr{}, fl(2), types{fl(2), fl()}, "takes 3 operands, got 2"},
	{program.OpClamp, attr{}, in(2), types{in(2), fl(), fl()}, "takes float, got int[2]"},
	{program.OpClamp, attr{}, fl(2), types{fl(2), in(), fl()}, "lower bound takes float, got int"},
	{program.OpClamp, attr{}, fl(2), types{fl(2), fl(), bo()}, "upper bound takes float, got bool"},
	{program.OpClamp, attr{}, fl(2), types{fl(2), fl(1), fl()},
		"lower bound is float[1], want a scalar"},
	{program.OpClamp, attr{}, fl(2), types{fl(2), fl(), fl(2)},
		"upper bound is float[2], want a scalar"},
	{program.OpClamp, attr{Axes: []int{0}}, fl(2), types{fl(2), fl(), fl()},
		"takes no attribute axes"},
	{program.OpClamp, attr{}, fl(1), types{fl(), fl(), fl()},
		"states the type float[1], but its operands imply float"},
	{program.OpSelect, attr{}, fl(2), types{fl(2), fl(2), fl(2)},
		"condition takes bool, got float[2]"},
	{program.OpSelect, attr{}, fl(2), types{bo(2), fl(2), in(2)},
		"operands have different element types: float[2] and int[2]"},
	{program.OpSelect, attr{}, fl(2), types{bo(3), fl(2), fl(2)},
		"shapes [2] and [3] do not match: ranks must be equal and axes equal or 1 (reshape or " +
			"broadcast one operand)"},
	{program.OpSelect, attr{}, fl(2), types{bo(2), fl(2), fl(3)},
		"shapes [2] and [3] do not match: ranks must be equal and axes equal or 1 (reshape or " +
			"broadcast one operand)"},
	{program.OpBitcast, attr{}, bo(2), types{in(2)}, "takes float or int or uint, got bool[2]"},
	{program.OpBitcast, attr{}, in(2), types{bo(2)}, "takes float or int or uint, got bool[2]"},
	{program.OpConvert, attr{}, in(3), types{fl(2)},
		"states the type int[3], but its operands imply int[2]"},

	// shapes
	{program.OpReshape, attr{}, fl(5), types{fl(2, 3)},
		"cannot reshape float[2,3] to [5]: got 6 elements, want 5"},
	{program.OpReshape, attr{}, in(6), types{fl(2, 3)},
		"states the type int[6], but its operands imply float[6]"},
	{program.OpTranspose, attr{Axes: []int{0}}, fl(2, 3), types{fl(2, 3)},
		"permutation [0] does not have 2 axes"},
	{program.OpTranspose, attr{Axes: []int{0, 0}}, fl(2, 3), types{fl(2, 3)},
		"[0 0] is not a permutation of 2 axes"},
	{program.OpTranspose, attr{Axes: []int{0, 2}}, fl(2, 3), types{fl(2, 3)},
		"[0 2] is not a permutation of 2 axes"},
	{program.OpTranspose, attr{Axes: []int{-1, 0}}, fl(2, 3), types{fl(2, 3)},
		"[-1 0] is not a permutation of 2 axes"},
	{program.OpTranspose, attr{Axes: []int{1, 0}}, fl(2, 3), types{fl(2, 3)},
		"states the type float[2,3], but its operands imply float[3,2]"},
	{program.OpBroadcast, attr{}, fl(2, 3), types{fl(3)}, "got 0 axes for an operand with 1"},
	{program.OpBroadcast, attr{Axes: []int{2}}, fl(2, 3), types{fl(3)},
		"axis 2 does not exist: the rank is 2"},
	{program.OpBroadcast, attr{Axes: []int{1, 0}}, fl(2, 3), types{fl(3, 2)},
		"axes [1 0] are not strictly increasing"},
	{program.OpBroadcast, attr{Axes: []int{0, 0}}, fl(2, 3), types{fl(2, 2)},
		"axes [0 0] are not strictly increasing"},
	{program.OpBroadcast, attr{Axes: []int{0}}, fl(2, 3), types{fl(3)},
		"operand axis 0 has 3 elements, result axis 0 has 2: must be equal or 1"},
	{program.OpSlice, attr{}, fl(2), types{fl(2)},
		"start, limit and stride need one number for each of 1 axes"},
	{program.OpSlice, attr{Start: []int{0}, Limit: []int{2, 2}, Stride: []int{1}}, fl(2), types{fl(2)},
		"start, limit and stride need one number for each of 1 axes"},
	{program.OpSlice, attr{Start: []int{-1}, Limit: []int{2}, Stride: []int{1}}, fl(2), types{fl(2)},
		"axis 0: start -1, limit 2, stride 1 do not select from 2 elements"},
	{program.OpSlice, attr{Start: []int{1}, Limit: []int{1}, Stride: []int{1}}, fl(2), types{fl(2)},
		"axis 0: start 1, limit 1, stride 1 do not select from 2 elements"},
	{program.OpSlice, attr{Start: []int{0}, Limit: []int{3}, Stride: []int{1}}, fl(2), types{fl(2)},
		"axis 0: start 0, limit 3, stride 1 do not select from 2 elements"},
	{program.OpSlice, attr{Start: []int{0}, Limit: []int{2}, Stride: []int{0}}, fl(2), types{fl(2)},
		"axis 0: start 0, limit 2, stride 0 do not select from 2 elements"},
	{program.OpConcatenate, attr{}, fl(4), types{fl(2), fl(2)},
		"got axes [], want one axis of float[2]"},
	{program.OpConcatenate, attr{Axes: []int{1}}, fl(4), types{fl(2), fl(2)},
		"got axes [1], want one axis of float[2]"},
	{program.OpConcatenate, attr{Axes: []int{0}}, fl(), types{fl()},
		"got axes [0], want one axis of float"},
	{program.OpConcatenate, attr{Axes: []int{0}}, fl(4), types{fl(2), in(2)},
		"cannot join float[2] and int[2]"},
	{program.OpConcatenate, attr{Axes: []int{0}}, fl(4), types{fl(2), fl(2, 1)},
		"cannot join float[2] and float[2,1]"},
	{program.OpConcatenate, attr{Axes: []int{0}}, fl(4, 2), types{fl(2, 2), fl(2, 3)},
		"cannot join float[2,2] and float[2,3] along axis 0"},

	// reductions
	{program.OpReduceSum, attr{Axes: []int{0}}, bo(), types{bo(2)},
		"takes float or int or uint, got bool[2]"},
	{program.OpReduceMax, attr{}, fl(2), types{fl(2)}, "names no axis to reduce"},
	{program.OpReduceMin, attr{Axes: []int{1}}, fl(2), types{fl(2)},
		"axis 1 does not exist: the rank is 1"},
	{program.OpReduceSum, attr{Axes: []int{0}}, fl(), types{fl()},
		"axis 0 does not exist: the rank is 0"},
	{program.OpReduceSum, attr{Axes: []int{1, 0}}, fl(), types{fl(2, 2)},
		"axes [1 0] are not strictly increasing"},
	{program.OpReduceSum, attr{Axes: []int{0, 0}}, fl(2), types{fl(2, 2)},
		"axes [0 0] are not strictly increasing"},
	{program.OpReduceSum, attr{Axes: []int{0}}, fl(1, 2), types{fl(2, 2)},
		"states the type float[1,2], but its operands imply float[2]"},

	// products
	{program.OpDot, attr{}, in(), types{in(), in()}, "takes float, got int"},
	{program.OpDot, attr{}, fl(), types{fl(), in()}, "takes float, got int"},
	{program.OpDot, attr{LhsContract: []int{1}}, fl(2, 3), types{fl(2, 3), fl(3, 2)},
		"got 1 contracted axes on the left, 0 on the right"},
	{program.OpDot, attr{RhsBatch: []int{1}}, fl(2, 3), types{fl(2, 3), fl(3, 2)},
		"got 0 batch axes on the left, 1 on the right"},
	{program.OpDot, attr{LhsContract: []int{0}, RhsContract: []int{0}}, fl(3, 2),
		types{fl(2, 3), fl(3, 2)}, "contracted axes 0 of float[2,3] and 0 of float[3,2] do not match"},
	{program.OpDot, attr{LhsContract: []int{2}, RhsContract: []int{0}}, fl(3, 2),
		types{fl(2, 3), fl(3, 2)}, "contracted axes 2 of float[2,3] and 0 of float[3,2] do not match"},
	{program.OpDot, attr{LhsContract: []int{1}, RhsContract: []int{-1}}, fl(3, 2),
		types{fl(2, 3), fl(3, 2)}, "contracted axes 1 of float[2,3] and -1 of float[3,2] do not match"},
	{program.OpDot, attr{LhsBatch: []int{0}, RhsBatch: []int{2}}, fl(3, 2), types{fl(2, 3), fl(3, 2)},
		"batch axes 0 of float[2,3] and 2 of float[3,2] do not match"},
	{program.OpDot, attr{LhsContract: []int{0, 0}, RhsContract: []int{0, 1}}, fl(),
		types{fl(2), fl(2, 2)}, "an axis is named twice"},
	{program.OpDot, attr{LhsContract: []int{0}, RhsContract: []int{0}, LhsBatch: []int{1},
		RhsBatch: []int{0}}, fl(), types{fl(2, 2), fl(2)}, "an axis is named twice"},
	{program.OpDot, attr{LhsContract: []int{1}, RhsContract: []int{0}}, fl(2),
		types{fl(2, 3), fl(3, 2)}, "states the type float[2], but its operands imply float[2,2]"},
	{program.OpHadamard, attr{Block: 2}, in(2), types{in(2)}, "takes float, got int[2]"},
	{program.OpHadamard, attr{Block: 1}, fl(), types{fl()}, "takes at least one axis"},
	{program.OpHadamard, attr{}, fl(8), types{fl(8)},
		"block 0 is not a power of two dividing the last axis (8)"},
	{program.OpHadamard, attr{Block: -2}, fl(8), types{fl(8)},
		"block -2 is not a power of two dividing the last axis (8)"},
	{program.OpHadamard, attr{Block: 3}, fl(9), types{fl(9)},
		"block 3 is not a power of two dividing the last axis (9)"},
	{program.OpHadamard, attr{Block: 16}, fl(2, 8), types{fl(2, 8)},
		"block 16 is not a power of two dividing the last axis (8)"},
	{program.OpHadamard, attr{Block: math.MinInt}, fl(8), types{fl(8)},
		"block -9223372036854775808 is not a power of two dividing the last axis (8)"},

	// factorizations
	{program.OpQR, attr{}, in(2, 2), types{in(2, 2)}, "takes float, got int[2,2]"},
	{program.OpQR, attr{}, fl(2), types{fl(2)}, "takes matrices, got float[2]"},
	{program.OpQR, attr{}, fl(2, 3), types{fl(2, 3)},
		"takes matrices with at least as many rows as columns, got float[2,3]"},
	{program.OpEighValues, attr{}, fl(2), types{fl(3, 2)}, "takes square matrices, got float[3,2]"},
	{program.OpEighValues, attr{}, fl(2, 2), types{fl(2, 2)},
		"states the type float[2,2], but its operands imply float[2]"},
	{program.OpEighVectors, attr{}, fl(2, 3), types{fl(2, 3)},
		"takes square matrices, got float[2,3]"},
	{program.OpEighVectors, attr{}, fl(3), types{fl(3)}, "takes matrices, got float[3]"},
	{program.OpSortColumns, attr{}, fl(2, 3), types{fl(2, 3)}, "takes 2 operands, got 1"},
	{program.OpSortColumns, attr{}, fl(3), types{fl(3), fl(3)}, "takes matrices, got float[3]"},
	{program.OpSortColumns, attr{}, fl(2, 3), types{fl(2, 3), fl(2)},
		"takes keys of type float[3] for the columns of float[2,3], got float[2]"},
	{program.OpSortColumns, attr{}, fl(4, 2, 3), types{fl(4, 2, 3), fl(3)},
		"takes keys of type float[4,3] for the columns of float[4,2,3], got float[3]"},
	{program.OpSortColumns, attr{}, fl(2, 3), types{fl(2, 3), in(3)},
		"takes keys of type float[3] for the columns of float[2,3], got int[3]"},

	// tables and order
	{program.OpNearest, attr{}, in(3), types{in(3), fl(2)}, "takes float, got int[3]"},
	{program.OpNearest, attr{}, in(3), types{fl(3), in(2)}, "takes float, got int[2]"},
	{program.OpNearest, attr{}, in(3), types{fl(3), fl()},
		"takes a table of one or two axes, got float"},
	{program.OpNearest, attr{}, in(2), types{fl(2, 3), fl(5, 4)},
		"the last axis of float[2,3] does not have the length of the rows of the table, float[5,4]"},
	{program.OpNearest, attr{}, in(), types{fl(), fl(5, 1)},
		"the last axis of float does not have the length of the rows of the table, float[5,1]"},
	{program.OpNearest, attr{}, fl(2), types{fl(2, 3), fl(5, 3)},
		"states the type float[2], but its operands imply int[2]"},
	{program.OpLookup, attr{}, fl(2, 3), types{fl(2), fl(5, 3)}, "index takes int, got float[2]"},
	{program.OpLookup, attr{}, fl(2), types{in(2), in(5)}, "table takes float, got int[5]"},
	{program.OpLookup, attr{}, fl(2, 3, 4), types{in(2), fl(5, 3, 4)},
		"takes a table of one or two axes, got float[5,3,4]"},
	{program.OpLookup, attr{}, fl(2), types{in(2), fl(5, 3)},
		"states the type float[2], but its operands imply float[2,3]"},
	{program.OpScatterAdd, attr{}, fl(5), types{fl(2), fl(2)}, "index takes int, got float[2]"},
	{program.OpScatterAdd, attr{}, fl(5), types{in(2), fl(3)},
		"int[2] does not have an index for each row of float[3]"},
	{program.OpScatterAdd, attr{}, fl(5, 3), types{in(2), fl(2, 4)},
		"the last axis of float[2,4] does not have the length of the rows of the table, float[5,3]"},
	{program.OpScatterAdd, attr{}, fl(), types{in(2), fl(2)},
		"takes a table of one or two axes, got float"},
	{program.OpTopK, attr{}, program.Type{DType: program.Bool}, types{fl(), in()},
		"takes at least one axis"},
	{program.OpTopK, attr{}, program.Type{DType: program.Bool, Shape: []int{4}}, types{fl(4), fl()},
		"takes k of type int, got float"},
	{program.OpOrderStatistic, attr{}, fl(), types{in(4), in()}, "takes float, got int[4]"},
	{program.OpOrderStatistic, attr{}, fl(2), types{fl(2, 4), in(1)},
		"takes k of type int, got int[1]"},
	{program.OpOrderStatistic, attr{}, fl(2, 4), types{fl(2, 4), in()},
		"states the type float[2,4], but its operands imply float[2]"},
}

func TestInvalidNodes(t *testing.T) {
	for _, c := range invalidNodes {
		p := single(c.op, c.attr, c.result, c.inputs)
		want := fmt.Sprintf(`program "p": %%%d = %s: %s`, len(c.inputs), c.op, c.want)
		if err := p.Validate(program.Limits{Linalg: true}); err == nil || err.Error() != want {
			t.Errorf("%s %v %+v:\n got %v\nwant %s", c.op, c.inputs, c.attr, err, want)
		}
	}
}

// operandTypes returns the types that the Operands column accepts for each operand.
func operandTypes(info program.OpInfo) map[program.DType]bool {
	text, _, _ := strings.Cut(strings.ReplaceAll(info.Operands, "float[", "float, ["), "[")
	accepted := map[program.DType]bool{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		for _, t := range []program.DType{program.Float, program.Int, program.Uint, program.Bool} {
			if word == t.String() || word == "any" {
				accepted[t] = true
			}
		}
	}
	return accepted
}

// TestOperandsColumn checks that the validator accepts the column Operands.
func TestOperandsColumn(t *testing.T) {
	attrs := map[program.Op]attr{
		program.OpTranspose: {Axes: []int{1, 0}}, program.OpBroadcast: {Axes: []int{0, 1}},
		program.OpSlice:       {Start: []int{0, 0}, Limit: []int{2, 2}, Stride: []int{1, 1}},
		program.OpConcatenate: {Axes: []int{0}}, program.OpHadamard: {Block: 2},
		program.OpReduceSum: {Axes: []int{0}}, program.OpReduceMax: {Axes: []int{0}},
		program.OpReduceMin: {Axes: []int{0}},
	}
	for _, info := range program.Ops() {
		if info.Class == program.ClassSource || info.Op == program.OpSelect ||
			info.Op == program.OpClamp || info.Op == program.OpSortColumns ||
			info.Class == program.ClassTable {
			continue // no operands, or operands of different types or shapes
		}
		accepted := operandTypes(info)
		if len(accepted) == 0 {
			t.Errorf("%s: the column Operands %q names no type", info.Name, info.Operands)
		}
		for _, dtype := range []program.DType{program.Float, program.Int, program.Uint, program.Bool} {
			b := program.NewBuilder("operands")
			args := []program.Value{b.Input("x", program.Type{DType: dtype, Shape: []int{2, 2}}),
				b.Input("y", program.Type{DType: dtype, Shape: []int{2, 2}})}
			b.Apply(info.Op, attrs[info.Op], program.Type{DType: program.Float, Shape: []int{2, 2}},
				args[:max(1, info.Arity)]...)
			if got := b.Err() == nil; got != accepted[dtype] {
				t.Errorf("%s of %s: accepted: %v, the table says %q (%v)", info.Name, dtype, got, info.Operands,
					b.Err())
			}
		}
	}
}

func TestInvalidPrograms(t *testing.T) {
	valid := func() *program.Program {
		return &program.Program{
			Name:    "p",
			Inputs:  []program.Input{{Name: "x", Type: fl(2)}, {Name: "y", Type: fl(2)}},
			Nodes:   []program.Node{{Op: program.OpAdd, Args: []program.ID{0, 1}, Type: fl(2)}},
			Outputs: []program.Output{{Name: "z", Value: 2}},
		}
	}
	if err := valid().Validate(program.Limits{}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", program.MaxName+1)
	cases := []struct {
		name   string
		change func(p *program.Program)
		want   string
	}{
		{"empty", func(p *program.Program) { *p = program.Program{} },
			`program "": name: the name is empty`},
		{"name with spaces", func(p *program.Program) { p.Name = "two words" },
			`program "two words": name: the name contains ' ': use letters, digits and . _ - /`},
		{"name with a newline", func(p *program.Program) { p.Name = "a\nb" },
			"program \"a\\nb\": name: the name contains '\\n': use letters, digits and . _ - /"},
		{"name with an escape sequence", func(p *program.Program) { p.Name = "a\u009b31m" },
			`program "a\u009b31m": name: the name contains '\u009b': use letters, digits and . _ - /`},
		{"name with a hidden mark", func(p *program.Program) { p.Name = "a\u202eb" },
			`program "a\u202eb": name: the name contains '\u202e': use letters, digits and . _ - /`},
		{"long name", func(p *program.Program) { p.Name = long }, `program "` + long[:60] +
			`…": name: the name is longer than 200 bytes`},
		{"name of broken UTF-8", func(p *program.Program) { p.Name = "\xff" },
			`program "\xff": name: the name is not valid UTF-8`},
		{"input without a name", func(p *program.Program) { p.Inputs[1].Name = "" },
			`program "p": input 1 (""): the name is empty`},
		{"input name with %", func(p *program.Program) { p.Inputs[0].Name = "%0" },
			`program "p": input 0 ("%0"): the name contains '%': use letters, digits and . _ - /`},
		{"two inputs of a name", func(p *program.Program) { p.Inputs[1].Name = "x" },
			`program "p": input 1 ("x"): the name is used twice`},
		{"input type", func(p *program.Program) { p.Inputs[0].Type = program.Type{} },
			`program "p": input 0 ("x"): element type invalid does not exist: use float, int, uint or bool`},
		{"input shape", func(p *program.Program) { p.Inputs[0].Type.Shape = []int{2, 0} },
			`program "p": input 0 ("x"): axis 1 has 0 elements, want at least 1`},
		{"operand of the future", func(p *program.Program) { p.Nodes[0].Args[1] = 2 },
			`program "p": %2 = add: operand %2 is not defined before it is used`},
		{"negative operand", func(p *program.Program) { p.Nodes[0].Args[0] = -1 },
			`program "p": %2 = add: operand %-1 is not defined before it is used`},
		{"no outputs", func(p *program.Program) { p.Outputs = nil },
			`program "p": outputs: there are none`},
		{"output name", func(p *program.Program) { p.Outputs[0].Name = "a b" },
			`program "p": output 0 ("a b"): the name contains ' ': use letters, digits and . _ - /`},
		{"two outputs of a name",
			func(p *program.Program) {
				p.Outputs = append(p.Outputs, p.Outputs[0])
			}, `program "p": output 1 ("z"): the name is used twice`},
		{"output that does not exist", func(p *program.Program) { p.Outputs[0].Value = 3 },
			`program "p": output 0 ("z"): value %3 does not exist`},
		{"negative output", func(p *program.Program) { p.Outputs[0].Value = -1 },
			`program "p": output 0 ("z"): value %-1 does not exist`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := valid()
			c.change(p)
			if err := p.Validate(program.Limits{}); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
