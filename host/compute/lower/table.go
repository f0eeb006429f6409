package lower

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

// tableRow returns the number of elements in a row of a table of this shape.
func tableRow(table []int) int { return shapes.Make(dtypes.Float32, table[1:]...).Size() }

// maxDistances is the largest number of distances that a graph computes at once.
const maxDistances = 1 << 24

// lowerNearest compares x with a few rows of the table at a time, to limit the memory for distances.
func lowerNearest(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	table := args[1]
	entries, d := table.Shape().Dim(0), tableRow(dims(table))
	count := int(n.Type.Size())
	x := graph.Reshape(args[0], count, 1, d)
	table = graph.Reshape(table, 1, entries, d)
	each := max(16, maxDistances/count)
	var least, nearest *graph.Node
	for first := 0; first < entries; first += each {
		part := graph.SliceAxis(table, 1, graph.AxisRange(first, min(entries, first+each)))
		distance, index := l.nearestOf(x, part, first)
		if least == nil {
			least, nearest = distance, index
			continue
		}
		less := graph.LessThan(distance, least)
		least, nearest = graph.Where(less, distance, least), graph.Where(less, index, nearest)
	}
	return graph.Reshape(nearest, n.Type.Shape...)
}

// nearestOf returns the least squared distance of each row of x, [count, 1, d], to the rows of a table, [1, n, d], and the index
// of the first row at this distance, plus first.
func (l *lowering) nearestOf(x, table *graph.Node, first int) (distance, index *graph.Node) {
	difference := graph.Sub(x, table)
	all := graph.ReduceSum(graph.Mul(difference, difference), 2)
	if table.Shape().Dim(2) == 1 { // |x − t| instead of its square: rounded once, without overflow
		all = graph.Reshape(graph.Abs(difference), dims(all)...)
	}
	all = graph.Where(graph.Equal(all, all), all, l.scalar(math.Inf(1)))
	distance = graph.ReduceMin(all, 1)
	numbers := graph.Iota(l.g, shapes.Make(dtypes.Int32, dims(all)...), 1)
	last := constant(l.g, int32(table.Shape().Dim(1)))
	index = graph.ReduceMin(graph.Where(graph.Equal(all, graph.InsertAxes(distance, 1)), numbers, last), 1)
	return distance, graph.AddScalar(index, first)
}

// rowIndex returns the index operand of a gather or scatter: the indices, clamped to the range of a table with n rows.
func (l *lowering) rowIndex(index *graph.Node, n int) *graph.Node {
	index = graph.Reshape(index, index.Shape().Size(), 1)
	return graph.Min(graph.Max(index, constant(l.g, int32(0))), constant(l.g, int32(n-1)))
}

func lowerLookup(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	return graph.Reshape(graph.Gather(args[1], l.rowIndex(args[0], args[1].Shape().Dim(0))), n.Type.Shape...)
}

func lowerScatterAdd(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	rows := slices.Concat([]int{args[0].Shape().Size()}, n.Type.Shape[1:])
	return graph.Scatter(l.rowIndex(args[0], n.Type.Shape[0]), graph.Reshape(args[1], rows...), l.shape(n.Type), false, false)
}

// ordered maps floats to integers in the same order: equal for both zeros, and largest for NaN.
func (l *lowering) ordered(x *graph.Node) *graph.Node {
	bits := graph.Bitcast(x, l.float.bits)
	most := l.integer(int64(1)<<(l.float.width-1) - 1)
	sign := graph.BitwiseShiftRightArithmetic(bits, l.integer(int64(l.float.width-1)))
	key := graph.BitwiseXor(bits, graph.BitwiseAnd(sign, most))
	key = graph.Where(graph.Equal(x, l.scalar(0)), l.integer(0), key)
	return graph.Where(graph.Equal(x, x), key, most)
}

// lowerTopK marks the k largest elements of each row: those with fewer than k elements before them
// in descending order. An accelerator compares all pairs without writing them to memory.
func lowerTopK(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	d := n.Type.Shape[n.Type.Rank()-1]
	pairs := []int{int(n.Type.Size()) / d, d, d}
	key := graph.Reshape(l.ordered(args[0]), pairs[0], d)
	one := graph.BroadcastToDims(graph.InsertAxes(key, 2), pairs...)
	other := graph.BroadcastToDims(graph.InsertAxes(key, 1), pairs...)
	shape := shapes.Make(dtypes.Int32, pairs...)
	earlier := graph.LessThan(graph.Iota(l.g, shape, 2), graph.Iota(l.g, shape, 1))
	before := graph.LogicalOr(graph.GreaterThan(other, one), graph.LogicalAnd(graph.Equal(other, one), earlier))
	rank := graph.ReduceSum(graph.ConvertDType(before, dtypes.Int32), 2)
	return graph.Reshape(graph.LessThan(rank, args[1]), n.Type.Shape...)
}

// lowerOrderStatistic finds the bits of the result from the highest to the lowest: the result is
// the largest number that at most k elements are below. Each bit takes a pass over x.
func lowerOrderStatistic(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	d := args[0].Shape().Dim(-1)
	x := graph.Reshape(args[0], int(n.Type.Size()), d)
	key := l.ordered(x)
	k := graph.Min(graph.Max(args[1], constant(l.g, int32(0))), constant(l.g, int32(d-1)))
	count := func(v *graph.Node) *graph.Node { return graph.ReduceSum(graph.ConvertDType(v, dtypes.Int32), 1) }
	least := graph.BroadcastToDims(l.integer(-1<<(l.float.width-1)), int(n.Type.Size()))
	found := engine.Loop(l.g, l.float.width, []*graph.Node{key, k}, []*graph.Node{least}, func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		bit := graph.Sub(l.integer(int64(l.float.width-1)), graph.ConvertDType(i, l.float.bits))
		step := graph.BitwiseShiftLeft(l.integer(1), bit) // first the least integer; twice it is 0
		try := graph.Add(state[0], step)
		below := count(graph.LessThan(fixed[0], graph.InsertAxes(try, 1)))
		return []*graph.Node{graph.Where(graph.LessOrEqual(below, fixed[1]), try, state[0])}
	})[0]
	most := l.integer(int64(1)<<(l.float.width-1) - 1)
	sign := graph.BitwiseShiftRightArithmetic(found, l.integer(int64(l.float.width-1)))
	out := graph.Bitcast(graph.BitwiseXor(found, graph.BitwiseAnd(sign, most)), l.float.dtype)
	nan := graph.GreaterThan(count(graph.NotEqual(x, x)), constant(l.g, int32(0)))
	return graph.Reshape(graph.Where(nan, l.scalar(math.NaN()), out), n.Type.Shape...)
}

// native replaces a rule by a function of package tables where the CPU runs natives and computes in float32.
func native(name string, others rule, run func(n *program.Node, in, out []engine.Tensor, parallel loops.Parallel)) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		if l.float != single || !engine.OnCPU(l.g) {
			return others(l, n, args)
		}
		call := engine.Native{Name: name, Outputs: []shapes.Shape{l.shape(n.Type)}, Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			run(n, in, out, loops.Parallel(parallel))
			return nil
		}}
		return call.Call(args...)[0]
	}
}

var (
	goNearest = native("nearest", lowerNearest, func(_ *program.Node, in, out []engine.Tensor, parallel loops.Parallel) {
		loops.Nearest(ints(out[0]), floats(in[0]), floats(in[1]), tableRow(in[1].Shape.Dimensions), parallel)
	})
	goLookup = native("lookup", lowerLookup, func(_ *program.Node, in, out []engine.Tensor, parallel loops.Parallel) {
		loops.Lookup(floats(out[0]), ints(in[0]), floats(in[1]), tableRow(in[1].Shape.Dimensions), parallel)
	})
	goScatterAdd = native("scatter_add", lowerScatterAdd, func(n *program.Node, in, out []engine.Tensor, parallel loops.Parallel) {
		loops.ScatterAdd(floats(out[0]), ints(in[0]), floats(in[1]), tableRow(n.Type.Shape), parallel)
	})
	goTopK = native("top_k", lowerTopK, func(n *program.Node, in, out []engine.Tensor, parallel loops.Parallel) {
		loops.TopK(out[0].Flat.([]bool), floats(in[0]), n.Type.Shape[n.Type.Rank()-1], int(ints(in[1])[0]), parallel)
	})
	goOrderStatistic = native("order_statistic", lowerOrderStatistic, func(_ *program.Node, in, out []engine.Tensor, parallel loops.Parallel) {
		loops.OrderStatistic(floats(out[0]), floats(in[0]), in[0].Shape.Dim(-1), int(ints(in[1])[0]), parallel)
	})
)

func floats(t engine.Tensor) []float32 { return t.Flat.([]float32) }
func ints(t engine.Tensor) []int32     { return t.Flat.([]int32) }
