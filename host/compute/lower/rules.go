package lower

import (
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
)

// rules lower operations to nodes with the semantics of StableHLO.
var rules = map[program.Op]rule{
	program.OpConstant:   lowerConstant,
	program.OpIota:       lowerIota,
	program.OpRandomBits: lowerRandomBits,

	program.OpNeg:      unary(graph.Neg),
	program.OpAbs:      unary(graph.Abs),
	program.OpSign:     unary(graph.Sign),
	program.OpSqrt:     unary(graph.Sqrt),
	program.OpExp:      unary(graph.Exp),
	program.OpExpm1:    unary(graph.Expm1),
	program.OpLog:      unary(graph.Log),
	program.OpLog1p:    unary(graph.Log1p),
	program.OpTanh:     unary(graph.Tanh),
	program.OpSin:      unary(graph.Sin),
	program.OpCos:      unary(graph.Cos),
	program.OpFloor:    unary(graph.Floor),
	program.OpRound:    unary(graph.Round),
	program.OpLogb:     lowerLogb,
	program.OpIsFinite: unary(graph.IsFinite),
	program.OpNot:      unary(graph.Not),

	program.OpAdd:   binary(graph.Add),
	program.OpSub:   binary(graph.Sub),
	program.OpMul:   binary(graph.Mul),
	program.OpDiv:   binary(graph.Div),
	program.OpPow:   binary(graph.Pow),
	program.OpMax:   binary(graph.Max),
	program.OpMin:   binary(graph.Min),
	program.OpLdexp: lowerLdexp,
	program.OpAnd:   binary(graph.And),
	program.OpOr:    binary(graph.Or),
	program.OpXor:   binary(graph.Xor),
	program.OpShl:   binary(graph.ShiftLeft),
	program.OpShr: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		if n.Type.DType == program.Uint {
			return graph.ShiftRightLogical(args[0], args[1])
		}
		return graph.ShiftRightArithmetic(args[0], args[1])
	},
	program.OpClamp: func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		return graph.Min(graph.Max(args[0], args[1]), args[2])
	},

	program.OpEq: binary(graph.Equal),
	program.OpNe: binary(graph.NotEqual),
	program.OpLt: binary(graph.LessThan),
	program.OpLe: binary(graph.LessOrEqual),
	program.OpGt: binary(graph.GreaterThan),
	program.OpGe: binary(graph.GreaterOrEqual),

	program.OpSelect: func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		return graph.Where(args[0], args[1], args[2])
	},
	program.OpConvert: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return graph.ConvertDType(args[0], dtypeOf(n.Type.DType))
	},
	program.OpBitcast: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		if to := dtypeOf(n.Type.DType); args[0].DType() != to {
			return graph.Bitcast(args[0], to)
		}
		return args[0]
	},

	program.OpReshape: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return graph.Reshape(args[0], n.Type.Shape...)
	},
	program.OpTranspose: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return graph.TransposeAllAxes(args[0], n.Attr.Axes...)
	},
	program.OpBroadcast: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return graph.BroadcastInDim(args[0], n.Type.Shape, n.Attr.Axes)
	},
	program.OpSlice: lowerSlice,
	program.OpConcatenate: func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return graph.Concatenate(args, n.Attr.Axes[0])
	},

	program.OpReduceSum: reduction(graph.ReduceSum),
	program.OpReduceMax: reduction(graph.ReduceMax),
	program.OpReduceMin: reduction(graph.ReduceMin),

	program.OpDot:      lowerDot,
	program.OpHadamard: lowerHadamard,

	program.OpStopGradient: unary(func(x *graph.Node) *graph.Node { return x }),

	program.OpSortColumns: lowerSortColumns,

	program.OpNearest:        lowerNearest,
	program.OpLookup:         lowerLookup,
	program.OpScatterAdd:     lowerScatterAdd,
	program.OpTopK:           lowerTopK,
	program.OpOrderStatistic: lowerOrderStatistic,
}

// unsupported maps the operations that no device can execute to the reasons.
var unsupported = map[program.Op]string{
	program.OpQR:          factorization,
	program.OpEighValues:  factorization,
	program.OpEighVectors: factorization,
}

const factorization = "factorizations belong into refresh programs, which the host executes"

func unary(f func(x *graph.Node) *graph.Node) rule {
	return func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node { return f(args[0]) }
}

func binary(f func(x, y *graph.Node) *graph.Node) rule {
	return func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		return f(args[0], args[1])
	}
}

func reduction(f func(x *graph.Node, axes ...int) *graph.Node) rule {
	return func(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		return f(args[0], n.Attr.Axes...)
	}
}

func lowerSlice(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if args[0].IsScalar() {
		return args[0]
	}
	axes := make([]graph.Range, len(n.Attr.Start))
	for i := range axes {
		axes[i] = graph.AxisRange(n.Attr.Start[i], n.Attr.Limit[i]).Stride(n.Attr.Stride[i])
	}
	return graph.Slice(args[0], axes...)
}

// lowerSortColumns finds the order of the columns by comparing all pairs of keys, which takes less
// time than gathering the columns.
func lowerSortColumns(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	x, keys := args[0], args[1]
	shape := n.Type.Shape
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	count := int(n.Type.Size()) / (rows * columns)
	index := sortedOrder(graph.Reshape(keys, count, columns))
	// Gather columns as rows of one long matrix.
	first := graph.Iota(x.Graph(), shapes.Make(shapes.Int32, count, columns), 0)
	index = graph.Add(index, graph.MulScalar(first, columns))
	x = graph.TransposeAllAxes(graph.Reshape(x, count, rows, columns), 0, 2, 1)
	x = graph.Gather(graph.Reshape(x, count*columns, rows), graph.Reshape(index, count*columns, 1))
	x = graph.TransposeAllAxes(graph.Reshape(x, count, columns, rows), 0, 2, 1)
	return graph.Reshape(x, shape...)
}

// sortedOrder returns the indices [b, n] that sort keys [b, n] in descending order. NaN counts as
// less than any number and equal to itself.
func sortedOrder(keys *graph.Node) *graph.Node {
	g, count, n := keys.Graph(), keys.Shape().Dim(0), keys.Shape().Dim(1)
	square := shapes.Make(shapes.Int32, count, n, n)
	along := func(v *graph.Node, axis int) *graph.Node { // repeats v along a new axis
		return graph.BroadcastToDims(graph.InsertAxes(v, axis), square.Dimensions...)
	}
	one, other := along(keys, 2), along(keys, 1)
	nan := graph.NotEqual(keys, keys)
	oneNaN, otherNaN := along(nan, 2), along(nan, 1)
	bothNaN := graph.And(oneNaN, otherNaN)
	onlyOtherNaN := graph.And(otherNaN, graph.Not(oneNaN))
	equal := graph.Or(graph.Equal(one, other), bothNaN)
	greater := graph.Or(graph.GreaterThan(one, other), onlyOtherNaN)
	i, j := graph.Iota(g, square, 1), graph.Iota(g, square, 2)
	before := graph.Or(greater, graph.And(equal, graph.LessThan(i, j)))
	rank := graph.ReduceSum(graph.ConvertDType(before, shapes.Int32), 1) // [b, j]: earlier keys
	here := graph.Equal(along(rank, 1), i)                               // [b, r, j]: j is the r-th
	return graph.ReduceSum(graph.Mul(graph.ConvertDType(here, shapes.Int32), j), 2)
}
