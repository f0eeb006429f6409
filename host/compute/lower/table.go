package lower

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
)

// maxDistances is the largest number of distances computed at once.
const maxDistances = 1 << 24

// lowerNearest compares x with a limited number of table rows at a time, to limit the memory for
// distances.
func lowerNearest(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	table := args[1]
	entries := table.Shape().Dim(0)
	d := table.Shape().Size() / entries
	count := int(n.Type.Size())
	x := graph.Reshape(args[0], count, 1, d)
	table = graph.Reshape(table, 1, entries, d)
	each := max(16, maxDistances/count)
	var least, nearest *graph.Node
	for first := 0; first < entries; first += each {
		size := min(entries-first, each)
		part := graph.SliceAxis(table, 1, graph.AxisRange(first, first+size))
		difference := graph.Sub(x, part)
		all := graph.ReduceSum(graph.Mul(difference, difference), 2)
		if d == 1 { // |x − t| instead of its square: rounded once, without overflow
			all = graph.Reshape(graph.Abs(difference), count, size)
		}
		all = graph.Where(graph.Equal(all, all), all, l.scalar(math.Inf(1)))
		distance := graph.ReduceMin(all, 1)
		numbers := graph.Iota(l.g, shapes.Make(shapes.Int32, count, size), 1)
		isLeast := graph.Equal(all, graph.InsertAxes(distance, 1))
		index := graph.ReduceMin(graph.Where(isLeast, numbers, l.integer(int32(size))), 1)
		index = graph.AddScalar(index, first)
		if least == nil {
			least, nearest = distance, index
			continue
		}
		less := graph.LessThan(distance, least)
		least, nearest = graph.Where(less, distance, least), graph.Where(less, index, nearest)
	}
	return graph.Reshape(nearest, n.Type.Shape...)
}

// rowIndex returns the index operand of a gather or scatter: the indices, clamped to the rows of a
// table with n rows.
func (l *lowering) rowIndex(index *graph.Node, n int) *graph.Node {
	index = graph.Reshape(index, index.Shape().Size(), 1)
	return graph.Min(graph.Max(index, l.integer(0)), l.integer(int32(n-1)))
}

func lowerLookup(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	rows := graph.Gather(args[1], l.rowIndex(args[0], args[1].Shape().Dim(0)))
	return graph.Reshape(rows, n.Type.Shape...)
}

func lowerScatterAdd(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	index, dims := l.rowIndex(args[0], n.Type.Shape[0]), slices.Clone(n.Type.Shape)
	dims[0] = args[0].Shape().Size()
	return graph.ScatterAdd(index, graph.Reshape(args[1], dims...), ShapeOf(n.Type))
}

// ordered maps floats to integers in the same order. Both zeros are equal, and NaN is the largest.
func (l *lowering) ordered(x *graph.Node) *graph.Node {
	most := l.integer(math.MaxInt32)
	key := l.flipped(graph.Bitcast(x, shapes.Int32))
	key = graph.Where(graph.Equal(x, l.scalar(0)), l.integer(0), key)
	return graph.Where(graph.Equal(x, x), key, most)
}

// flipped converts the bits of floats, as integers, to integers in the order of the floats, or
// back.
func (l *lowering) flipped(bits *graph.Node) *graph.Node {
	sign := graph.ShiftRightArithmetic(bits, l.integer(31))
	return graph.Xor(bits, graph.And(sign, l.integer(math.MaxInt32)))
}

// lowerTopK marks the k largest elements of each row: those preceded by fewer than k elements in
// descending order. Accelerators compare all pairs without writing them to memory.
func lowerTopK(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	d := n.Type.Shape[n.Type.Rank()-1]
	pairs := []int{int(n.Type.Size()) / d, d, d}
	key := graph.Reshape(l.ordered(args[0]), pairs[0], d)
	one := graph.BroadcastToDims(graph.InsertAxes(key, 2), pairs...)
	other := graph.BroadcastToDims(graph.InsertAxes(key, 1), pairs...)
	shape := shapes.Make(shapes.Int32, pairs...)
	earlier := graph.LessThan(graph.Iota(l.g, shape, 2), graph.Iota(l.g, shape, 1))
	earlierEqual := graph.And(graph.Equal(other, one), earlier)
	before := graph.Or(graph.GreaterThan(other, one), earlierEqual)
	rank := graph.ReduceSum(graph.ConvertDType(before, shapes.Int32), 2)
	return graph.Reshape(graph.LessThan(rank, args[1]), n.Type.Shape...)
}

// lowerOrderStatistic determines the bits of the result from the highest to the lowest: the result
// is the largest number such that at most k elements are less. Each bit takes a pass over x.
func lowerOrderStatistic(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	count, d := int(n.Type.Size()), args[0].Shape().Dim(-1)
	x := graph.Reshape(args[0], count, d)
	k := graph.Min(graph.Max(args[1], l.integer(0)), l.integer(int32(d-1)))
	sum := func(v *graph.Node) *graph.Node {
		return graph.ReduceSum(graph.ConvertDType(v, shapes.Int32), 1)
	}
	fixed := []*graph.Node{l.ordered(x), k}
	least := graph.BroadcastToDims(l.integer(math.MinInt32), count)
	step := func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		bit := graph.ShiftLeft(l.integer(1), graph.Sub(l.integer(31), i))
		try := graph.Add(state[0], bit) // first the least integer plus itself, which is 0
		below := sum(graph.LessThan(fixed[0], graph.InsertAxes(try, 1)))
		return []*graph.Node{graph.Where(graph.LessOrEqual(below, fixed[1]), try, state[0])}
	}
	found := engine.Loop(l.g, 32, fixed, []*graph.Node{least}, step)[0]
	out := graph.Bitcast(l.flipped(found), shapes.Float32)
	nan := graph.GreaterThan(sum(graph.NotEqual(x, x)), l.integer(0))
	return graph.Reshape(graph.Where(nan, l.scalar(math.NaN()), out), n.Type.Shape...)
}
