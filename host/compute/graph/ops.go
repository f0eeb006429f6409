package graph

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// Constant returns a node with the given dimensions and elements, in row-major order. A single
// element is repeated. Equal constants of a function are one node.
func Constant[T shapes.Element](g *Graph, data []T, dims ...int) *Node {
	shape := shapes.Make(shapes.Of[T](), dims...)
	if len(data) != shape.Size() && len(data) != 1 {
		fail("got %d elements for a constant of shape %s", len(data), shape)
	}
	hash := fnv.New128a()
	_ = binary.Write(hash, binary.LittleEndian, data) // writing numbers to a hash cannot fail
	return g.Shared(fmt.Sprintf("%s %x", shape, hash.Sum(nil)), func() *Node {
		return g.add(&Operation{Name: "constant", Data: slices.Clone(data)}, shape)[0]
	})
}

// Const returns a scalar.
func Const[T shapes.Element](g *Graph, v T) *Node { return Constant(g, []T{v}) }

// Scalar returns a scalar of a type.
func Scalar(g *Graph, dtype shapes.DType, v float64) *Node {
	switch dtype {
	case shapes.Int8:
		return Const(g, int8(v))
	case shapes.Uint8:
		return Const(g, uint8(v))
	case shapes.Int32:
		return Const(g, int32(v))
	case shapes.Uint32:
		return Const(g, uint32(v))
	case shapes.BFloat16:
		return Const(g, shapes.ToBFloat(float32(v)))
	case shapes.Float32:
		return Const(g, float32(v))
	case shapes.Float64:
		return Const(g, v)
	}
	panic(fmt.Errorf("a scalar of type %s", dtype))
}

// Zeros returns a tensor of zeros.
func Zeros(g *Graph, shape shapes.Shape) *Node {
	return BroadcastToDims(Scalar(g, shape.DType, 0), shape.Dimensions...)
}

// ZerosLike returns zeros, and OnesLike ones, of the shape of x.
func ZerosLike(x *Node) *Node { return Zeros(x.graph, x.shape) }
func OnesLike(x *Node) *Node {
	return BroadcastToDims(Scalar(x.graph, x.DType(), 1), x.shape.Dimensions...)
}

// Iota returns the indices along an axis.
func Iota(g *Graph, shape shapes.Shape, axis int) *Node {
	op := &Operation{Name: "iota", Attributes: []Attribute{{"iota_dimension", axis}}}
	return g.add(op, shape)[0]
}

// unary returns a function that adds an elementwise operation.
func unary(name string) func(x *Node) *Node {
	return func(x *Node) *Node { return apply(name, x.shape, []*Node{x}) }
}

// Operations on each element. [Round] rounds ties to even. [Not] negates bools, and inverts the
// bits of integers.
var (
	Neg               = unary("negate")
	Abs               = unary("abs")
	Sign              = unary("sign")
	Sqrt              = unary("sqrt")
	Exp               = unary("exponential")
	Expm1             = unary("exponential_minus_one")
	Log               = unary("log")
	Log1p             = unary("log_plus_one")
	Tanh              = unary("tanh")
	Sin               = unary("sine")
	Cos               = unary("cosine")
	Floor             = unary("floor")
	Round             = unary("round_nearest_even")
	Not               = unary("not")
	CountLeadingZeros = unary("count_leading_zeros")
)

// IsFinite reports which elements are neither infinite nor NaN.
func IsFinite(x *Node) *Node {
	return apply("is_finite", shapes.Make(shapes.Bool, x.shape.Dimensions...), []*Node{x})
}

// Square returns x·x.
func Square(x *Node) *Node { return Mul(x, x) }

// Reciprocal returns 1/x.
func Reciprocal(x *Node) *Node { return Div(Scalar(x.graph, x.DType(), 1), x) }

// OneMinus returns 1 − x.
func OneMinus(x *Node) *Node { return Sub(Scalar(x.graph, x.DType(), 1), x) }

// alike repeats operands along axes of size 1, and scalars, until all have the same dimensions.
func alike(nodes ...*Node) []*Node {
	var dims []int
	for _, n := range nodes {
		switch {
		case n == nil:
			fail("an operand is nil")
		case n.IsScalar():
		case dims == nil:
			dims = slices.Clone(n.shape.Dimensions)
		case len(dims) != n.Rank():
			fail("operands have shapes %v", shapesOf(nodes))
		default:
			for i, d := range n.shape.Dimensions {
				if dims[i] == 1 {
					dims[i] = d
				} else if d != 1 && d != dims[i] {
					fail("operands have shapes %v", shapesOf(nodes))
				}
			}
		}
	}
	return lists.Map(nodes, func(n *Node) *Node {
		if slices.Equal(n.shape.Dimensions, dims) {
			return n
		}
		return BroadcastToDims(n, dims...)
	})
}

// ofOneType is alike for operands of the same type.
func ofOneType(x, y *Node) []*Node {
	in := alike(x, y)
	if x.DType() != y.DType() {
		fail("operands have shapes %v", shapesOf(in))
	}
	return in
}

// pairwise returns a function that adds an operation on pairs of elements.
func pairwise(name string) func(x, y *Node) *Node {
	return func(x, y *Node) *Node {
		in := ofOneType(x, y)
		return apply(name, in[0].shape, in)
	}
}

// Operations on pairs of elements. Operands of one element along an axis, and scalars, are
// repeated. [And], [Or] and [Xor] are logical for bools, and bitwise for integers. Shifts to the
// right are logical or arithmetic.
var (
	Add                  = pairwise("add")
	Sub                  = pairwise("subtract")
	Mul                  = pairwise("multiply")
	Div                  = pairwise("divide")
	Pow                  = pairwise("power")
	Max                  = pairwise("maximum")
	Min                  = pairwise("minimum")
	And                  = pairwise("and")
	Or                   = pairwise("or")
	Xor                  = pairwise("xor")
	ShiftLeft            = pairwise("shift_left")
	ShiftRightLogical    = pairwise("shift_right_logical")
	ShiftRightArithmetic = pairwise("shift_right_arithmetic")
)

// number is the constraint of Go numbers that are given in place of a scalar node.
type number interface{ int | float64 }

// AddScalar, MulScalar and DivScalar combine x with a number, which gets the type of x.
func AddScalar[N number](x *Node, v N) *Node {
	return Add(x, Scalar(x.graph, x.DType(), float64(v)))
}
func MulScalar[N number](x *Node, v N) *Node {
	return Mul(x, Scalar(x.graph, x.DType(), float64(v)))
}
func DivScalar[N number](x *Node, v N) *Node {
	return Div(x, Scalar(x.graph, x.DType(), float64(v)))
}

// comparison returns a function that compares pairs of elements.
func comparison(direction string) func(x, y *Node) *Node {
	return func(x, y *Node) *Node {
		in := ofOneType(x, y)
		kind := "SIGNED"
		switch x.DType() {
		case shapes.Bool, shapes.Uint8, shapes.Uint32:
			kind = "UNSIGNED"
		case shapes.Float16, shapes.BFloat16, shapes.Float32, shapes.Float64:
			kind = "FLOAT"
		}
		return apply("compare", shapes.Make(shapes.Bool, in[0].shape.Dimensions...), in,
			Attribute{"comparison_direction", "#stablehlo<comparison_direction " + direction + ">"},
			Attribute{"compare_type", "#stablehlo<comparison_type " + kind + ">"})
	}
}

// Comparisons of pairs of elements, like those of numbers.
var (
	Equal          = comparison("EQ")
	NotEqual       = comparison("NE")
	LessThan       = comparison("LT")
	LessOrEqual    = comparison("LE")
	GreaterThan    = comparison("GT")
	GreaterOrEqual = comparison("GE")
)

// Where returns elements of x where condition is true, and of y elsewhere.
func Where(condition, x, y *Node) *Node {
	in := alike(condition, x, y)
	if x.DType() != y.DType() || condition.DType() != shapes.Bool {
		fail("the operands of a selection have shapes %v", shapesOf(in))
	}
	if condition.IsScalar() {
		in[0] = condition
	}
	return apply("select", in[1].shape, in)
}

// ConvertDType converts elements to a type.
func ConvertDType(x *Node, to shapes.DType) *Node {
	if x.DType() == to {
		return x
	}
	return apply("convert", shapes.Make(to, x.shape.Dimensions...), []*Node{x})
}

// Bitcast returns the bits of elements as those of a type of the same size.
func Bitcast(x *Node, to shapes.DType) *Node {
	if x.DType().Size() != to.Size() || (x.DType() == shapes.Bool) != (to == shapes.Bool) {
		fail("the bits of %s are not those of %s", x.DType(), to)
	}
	return apply("bitcast_convert", shapes.Make(to, x.shape.Dimensions...), []*Node{x})
}

// Reshape returns the elements in other dimensions, of which one may be −1.
func Reshape(x *Node, dims ...int) *Node {
	dims = slices.Clone(dims)
	if i := slices.Index(dims, -1); i >= 0 {
		dims[i] = 1
		dims[i] = x.shape.Size() / max(1, shapes.Make(x.DType(), dims...).Size())
	}
	shape := shapes.Make(x.DType(), dims...)
	switch {
	case shape.Size() != x.shape.Size():
		fail("%s does not have the elements of %s", x.shape, shape)
	case shape.Equal(x.shape):
		return x
	}
	return apply("reshape", shape, []*Node{x})
}

// Copy returns a node of its own that equals x.
func Copy(x *Node) *Node { return apply("reshape", x.shape, []*Node{x}) }

// InsertAxes inserts axes of size 1 before the given ones of x; −1 means behind the last.
func InsertAxes(x *Node, axes ...int) *Node {
	axes = lists.Map(axes, func(axis int) int {
		if axis < 0 {
			return axis + x.Rank() + 1
		}
		return axis
	})
	slices.Sort(axes)
	dims := slices.Clone(x.shape.Dimensions)
	for _, axis := range slices.Backward(axes) {
		dims = slices.Insert(dims, axis, 1)
	}
	return Reshape(x, dims...)
}

// TransposeAllAxes returns a tensor whose axis i is the axis axes[i] of x.
func TransposeAllAxes(x *Node, axes ...int) *Node {
	if len(axes) != x.Rank() {
		fail("axes %v of %s", axes, x.shape)
	}
	dims := lists.Map(axes, func(axis int) int { return x.shape.Dimensions[axis] })
	return apply("transpose", shapes.Make(x.DType(), dims...), []*Node{x},
		Attribute{"permutation", axes})
}

// BroadcastToDims repeats a scalar, or a tensor of the same rank along its axes of size 1.
func BroadcastToDims(x *Node, dims ...int) *Node {
	if slices.Equal(x.shape.Dimensions, dims) {
		return x
	}
	if !x.IsScalar() && x.Rank() != len(dims) {
		fail("%s cannot be repeated to dimensions %v", x.shape, dims)
	}
	return BroadcastInDim(x, dims, lists.Range(x.Rank()))
}

// BroadcastInDim repeats x to the given dimensions: axis i of x becomes the axis axes[i], along
// which it is repeated if it has size 1.
func BroadcastInDim(x *Node, dims, axes []int) *Node {
	for i, d := range x.shape.Dimensions {
		if d != 1 && d != dims[axes[i]] {
			fail("%s cannot be repeated to dimensions %v", x.shape, dims)
		}
	}
	return apply("broadcast_in_dim", shapes.Make(x.DType(), dims...), []*Node{x},
		Attribute{"broadcast_dimensions", axes})
}

// A Range selects indices of an axis.
type Range struct{ start, limit, stride int }

// AxisRange selects the indices from start to limit − 1.
func AxisRange(start, limit int) Range { return Range{start, limit, 1} }

// AxisElem selects one index.
func AxisElem(i int) Range { return AxisRange(i, i+1) }

// Stride selects every n-th index of a range.
func (r Range) Stride(n int) Range { return Range{r.start, r.limit, n} }

// Slice selects ranges of the first axes.
func Slice(x *Node, ranges ...Range) *Node {
	start, limit := make([]int, x.Rank()), slices.Clone(x.shape.Dimensions)
	stride := slices.Repeat([]int{1}, x.Rank())
	dims := slices.Clone(limit)
	for i, r := range ranges {
		if r.start < 0 || r.limit > dims[i] || r.start > r.limit || r.stride < 1 {
			fail("range %v of axis %d of %s", r, i, x.shape)
		}
		start[i], limit[i], stride[i] = r.start, r.limit, r.stride
		dims[i] = (r.limit - r.start + r.stride - 1) / r.stride
	}
	return apply("slice", shapes.Make(x.DType(), dims...), []*Node{x},
		Attribute{"start_indices", start}, Attribute{"limit_indices", limit},
		Attribute{"strides", stride})
}

// SliceAxis selects a range of an axis.
func SliceAxis(x *Node, axis int, r Range) *Node {
	ranges := lists.Map(x.shape.Dimensions[:axis], func(d int) Range { return AxisRange(0, d) })
	return Slice(x, append(ranges, r)...)
}

// Concatenate joins tensors along an axis.
func Concatenate(nodes []*Node, axis int) *Node {
	shape := nodes[0].shape.Clone()
	axis = shape.Axis(axis)
	for _, n := range nodes[1:] {
		want := n.shape.Clone()
		if want.Rank() != shape.Rank() {
			fail("%s and %s are joined", shape, n.shape)
		}
		want.Dimensions[axis] = shape.Dimensions[axis]
		if !want.Equal(shape) {
			fail("%s and %s are joined along axis %d", shape, n.shape, axis)
		}
		shape.Dimensions[axis] += n.shape.Dimensions[axis]
	}
	return apply("concatenate", shape, nodes, Attribute{"dimension", axis})
}

// Reverse reverses the order along axes.
func Reverse(x *Node, axes ...int) *Node {
	return apply("reverse", x.shape, []*Node{x}, Attribute{"dimensions", axes})
}

// PadAxis adds copies of value, a scalar, before and after an axis of x.
func PadAxis(x, value *Node, axis, before, after int) *Node {
	low, high, shape := make([]int, x.Rank()), make([]int, x.Rank()), x.shape.Clone()
	low[axis], high[axis] = before, after
	shape.Dimensions[axis] += before + after
	return apply("pad", shape, []*Node{x, value}, Attribute{"edge_padding_low", low},
		Attribute{"edge_padding_high", high}, Attribute{"interior_padding", make([]int, x.Rank())})
}

// DynamicSlice returns the elements of x from the given indices, scalars that are clamped so that
// all elements exist.
func DynamicSlice(x *Node, start []*Node, dims []int) *Node {
	return apply("dynamic_slice", shapes.Make(x.DType(), dims...), append([]*Node{x}, start...),
		Attribute{"slice_sizes", dims})
}

// DynamicUpdateSlice returns x with the elements from the given indices replaced.
func DynamicUpdateSlice(x, update *Node, start []*Node) *Node {
	return apply("dynamic_update_slice", x.shape, append([]*Node{x, update}, start...))
}

// axesOf returns axes, of which all are meant by none, and what remains of dims.
func axesOf(x *Node, axes []int) (list, rest []int) {
	if len(axes) == 0 {
		axes = lists.Range(x.Rank())
	}
	list = lists.Map(axes, x.shape.Axis)
	slices.Sort(list)
	for i, d := range x.shape.Dimensions {
		if !slices.Contains(list, i) {
			rest = append(rest, d)
		}
	}
	return list, rest
}

// combine returns a function of two scalars, which are combined by an operation.
func (g *Graph) combine(name string, dtype shapes.DType) *Function {
	scalar := shapes.Make(dtype)
	return g.build([]shapes.Shape{scalar, scalar}, func(in []*Node) []*Node {
		return []*Node{apply(name, scalar, in)}
	})
}

// reduction returns a function that combines the elements along axes, or all without axes.
func reduction(name string, initial func(d shapes.DType) float64) func(x *Node, axes ...int) *Node {
	return func(x *Node, axes ...int) *Node {
		if x.IsScalar() {
			return x
		}
		list, rest := axesOf(x, axes)
		args := []*Node{x, Scalar(x.graph, x.DType(), initial(x.DType()))}
		op := &Operation{Name: "reduce", Args: args, Attributes: []Attribute{{"dimensions", list}},
			Bodies: []*Function{x.graph.combine(name, x.DType())}}
		return x.graph.add(op, shapes.Make(x.DType(), rest...))[0]
	}
}

// extreme returns the least number of a type for sign −1, and the largest for 1.
func extreme(sign int) func(d shapes.DType) float64 {
	return func(d shapes.DType) float64 {
		least, largest := math.Inf(-1), math.Inf(1)
		switch d {
		case shapes.Int8:
			least, largest = math.MinInt8, math.MaxInt8
		case shapes.Uint8:
			least, largest = 0, math.MaxUint8
		case shapes.Int32:
			least, largest = math.MinInt32, math.MaxInt32
		case shapes.Uint32:
			least, largest = 0, math.MaxUint32
		}
		if sign < 0 {
			return least
		}
		return largest
	}
}

// Reductions over axes, or over all elements without axes.
var (
	ReduceSum = reduction("add", func(shapes.DType) float64 { return 0 })
	ReduceMax = reduction("maximum", extreme(-1))
	ReduceMin = reduction("minimum", extreme(1))
)

// ReduceMean returns means over axes.
func ReduceMean(x *Node, axes ...int) *Node {
	sum := ReduceSum(x, axes...)
	return MulScalar(sum, float64(sum.shape.Size())/float64(x.shape.Size()))
}

// ReduceAndKeep reduces x over axes, which remain with size 1.
func ReduceAndKeep(x *Node, reduce func(x *Node, axes ...int) *Node, axes ...int) *Node {
	list, _ := axesOf(x, axes)
	dims := slices.Clone(x.shape.Dimensions)
	for _, axis := range list {
		dims[axis] = 1
	}
	return Reshape(reduce(x, axes...), dims...)
}

// ArgMax returns the first index of the maximum of each row of the last axis, as int32; 0 if a
// number of the row is NaN.
func ArgMax(x *Node) *Node {
	last := x.Rank() - 1
	index := Iota(x.graph, shapes.Make(shapes.Int32, x.shape.Dimensions...), last)
	none := Const(x.graph, int32(math.MaxInt32))
	is := Equal(x, ReduceAndKeep(x, ReduceMax, last))
	found := ReduceMin(Where(is, index, none), last)
	return Where(Equal(found, none), Const(x.graph, int32(0)), found)
}

// Product describes a product of two tensors.
type Product struct {
	Contracted, Batch [2][]int // axes of both operands
	Result            shapes.DType
	Exact             bool // operands in float32 are not rounded to TF32
}

// Of returns the product of a and b: batch axes, then the free axes of a, then those of b.
func (p Product) Of(a, b *Node) *Node {
	dims, in := []int(nil), []*Node{a, b}
	for _, axis := range p.Batch[0] {
		dims = append(dims, a.shape.Dimensions[axis])
	}
	for i, x := range in {
		for axis, d := range x.shape.Dimensions {
			if !slices.Contains(p.Contracted[i], axis) && !slices.Contains(p.Batch[i], axis) {
				dims = append(dims, d)
			}
		}
	}
	for _, axes := range [2][2][]int{p.Contracted, p.Batch} {
		for i, axis := range axes[0] {
			if a.shape.Dimensions[axis] != b.shape.Dimensions[axes[1][i]] {
				fail("a product of %s and %s over axes %v", a.shape, b.shape, p.Contracted)
			}
		}
	}
	if a.DType() != b.DType() {
		fail("a product of %s and %s", a.shape, b.shape)
	}
	precision := "#stablehlo<precision DEFAULT>"
	if p.Exact {
		precision = "#stablehlo<precision HIGHEST>"
	}
	return apply("dot_general", shapes.Make(p.Result, dims...), in,
		Attribute{"dot_dimension_numbers", Struct{"dot", []Attribute{
			{"lhs_batching_dimensions", p.Batch[0]}, {"rhs_batching_dimensions", p.Batch[1]},
			{"lhs_contracting_dimensions", p.Contracted[0]},
			{"rhs_contracting_dimensions", p.Contracted[1]}}}},
		Attribute{"precision_config", "[" + precision + ", " + precision + "]"})
}

// Gather returns slices of x. The last axis of index, int32, has indices of the first axes of x.
func Gather(x, index *Node) *Node {
	n, lead := index.shape.Dim(-1), index.Rank()-1
	sizes, rest := slices.Clone(x.shape.Dimensions), x.shape.Dimensions[n:]
	for i := range n {
		sizes[i] = 1
	}
	dims := append(slices.Clone(index.shape.Dimensions[:lead]), rest...)
	first := lists.Range(n)
	return apply("gather", shapes.Make(x.DType(), dims...), []*Node{x, index},
		Attribute{"dimension_numbers", Struct{"gather", []Attribute{
			{"offset_dims", lists.Make(len(rest), func(i int) int { return lead + i })},
			{"collapsed_slice_dims", first}, {"start_index_map", first}, {"index_vector_dim", lead}}}},
		Attribute{"slice_sizes", sizes}, Attribute{"indices_are_sorted", "false"})
}

// ScatterAdd adds rows [n, …] to the rows of zeros of the given shape that have the indices [n, 1],
// int32.
func ScatterAdd(index, rows *Node, shape shapes.Shape) *Node {
	window := lists.Make(shape.Rank()-1, func(i int) int { return i + 1 })
	args := []*Node{Zeros(rows.graph, shape), index, rows}
	op := &Operation{Name: "scatter", Args: args, Attributes: []Attribute{
		{"scatter_dimension_numbers", Struct{"scatter", []Attribute{
			{"update_window_dims", window}, {"inserted_window_dims", []int{0}},
			{"scatter_dims_to_operand_dims", []int{0}}, {"index_vector_dim", 1}}}},
		{"indices_are_sorted", "false"}, {"unique_indices", "false"}},
		Bodies: []*Function{rows.graph.combine("add", shape.DType)}}
	return rows.graph.add(op, shape)[0]
}

// The operations by which [AllReduce] combines the values of replicas.
const (
	Sum     = "add"
	Maximum = "maximum"
	Minimum = "minimum"
)

// AllReduce combines the values of a node on all replicas. The result is the same on every replica;
// with one replica, it is x.
func AllReduce(x *Node, by string) *Node {
	if x.graph.replicas == 1 {
		return x
	}
	return x.across("all_reduce", x.shape, []*Function{x.graph.combine(by, x.DType())})
}

// AllGather concatenates the values of a node on all replicas along the first axis.
func AllGather(x *Node) *Node {
	shape := x.shape.Clone()
	shape.Dimensions[0] *= x.graph.replicas
	return x.across("all_gather", shape, nil, Attribute{"all_gather_dim", 0})
}

// ReduceScatter sums the values of a node on all replicas, and divides the rows among them.
func ReduceScatter(x *Node) *Node {
	shape := x.shape.Clone()
	shape.Dimensions[0] /= x.graph.replicas
	return x.across("reduce_scatter", shape, []*Function{x.graph.combine(Sum, x.DType())},
		Attribute{"scatter_dimension", 0})
}

// across adds an operation across all replicas.
func (x *Node) across(name string, result shapes.Shape, bodies []*Function,
	attributes ...Attribute) *Node {
	all := lists.Range(x.graph.replicas)
	groups := fmt.Sprintf("dense<[%s]> : tensor<1x%dxi64>", list(all), len(all))
	op := &Operation{Name: name, Args: []*Node{x}, Bodies: bodies,
		Attributes: append(attributes, Attribute{"replica_groups", groups})}
	return x.graph.add(op, result)[0]
}
