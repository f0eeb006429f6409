package lower

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/program"
)

// goAbs adds 0 because the backend's function for machines without vector instructions leaves −0 as it is.
func goAbs(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	y := graph.Abs(args[0])
	if engine.FloatLanes() > 1 {
		return y
	}
	return graph.Add(y, l.scalar(0))
}

func goSign(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	y := graph.Sign(args[0])
	if l.ranges[n.Args[0]].nan {
		y = l.keepNaN(args[0], y)
	}
	return y
}

// goExp squares the exponential of half the argument: half an argument stays in the range of the backend's
// function wherever the result is finite and not zero.
func goExp(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	root := graph.Exp(graph.Mul(x, l.scalar(0.5)))
	return l.keepNaN(x, graph.Mul(root, root))
}

// goTanh is −t/(t+2) with t = e^(−2|x|) − 1, which cancels nowhere and does not
// overflow. Below a quarter of the root of the precision, x is the nearest value.
func goTanh(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x := args[0]
	magnitude := graph.Abs(x)
	t := graph.Expm1(graph.Mul(magnitude, l.scalar(-2)))
	y := graph.Div(t, graph.Add(t, l.scalar(2)))
	y = graph.Where(graph.LessThan(x, l.scalar(0)), y, graph.Neg(y))
	tiny := l.scalar(1 / float64(int64(1)<<(l.float.mantissa/2+2)))
	return graph.Where(graph.LessThan(magnitude, tiny), x, y)
}

// goRound rounds numbers that are known to be small by a shift of the binary
// point, in two vectorized steps. Either way, zeros get the positive sign.
func goRound(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if most := l.float.exact(); l.ranges[n.Args[0]].within(-most, most) {
		shifter := l.scalar(l.float.shifter())
		return graph.Sub(graph.Add(args[0], shifter), shifter)
	}
	return graph.Add(graph.Round(args[0]), l.scalar(0))
}

// goIsFinite uses that ∞ − ∞ and NaN − NaN are NaN.
func goIsFinite(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	return graph.Equal(graph.Sub(args[0], args[0]), l.scalar(0))
}

// goFromBool selects 1 or 0, because the backend's conversion of bools branches on every element.
func goFromBool(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	switch n.Type.DType {
	case program.Float:
		return graph.Where(args[0], l.scalar(1), l.scalar(0))
	case program.Int:
		return graph.Where(args[0], constant(l.g, int32(1)), constant(l.g, int32(0)))
	case program.Uint:
		return graph.Where(args[0], constant(l.g, uint32(1)), constant(l.g, uint32(0)))
	}
	return args[0]
}

// bools computes on the bytes that hold the bools, 0 and 1, by bitwise operations.
func bools(f func(bits []*graph.Node) *graph.Node) rule {
	return func(_ *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
		bytes := make([]*graph.Node, len(args))
		for i, a := range args {
			bytes[i] = graph.Bitcast(a, dtypes.Uint8)
		}
		return graph.Bitcast(f(bytes), dtypes.Bool)
	}
}

func andBits(x []*graph.Node) *graph.Node { return graph.BitwiseAnd(x[0], x[1]) }
func orBits(x []*graph.Node) *graph.Node  { return graph.BitwiseOr(x[0], x[1]) }
func xorBits(x []*graph.Node) *graph.Node { return graph.BitwiseXor(x[0], x[1]) }
func notBits(x []*graph.Node) *graph.Node {
	return graph.BitwiseXor(x[0], graph.ScalarOne(x[0].Graph(), dtypes.Uint8))
}
func equalBits(x []*graph.Node) *graph.Node { return notBits([]*graph.Node{xorBits(x)}) }

// extreme is graph.Max or graph.Min. Where an operand is NaN, the Go backend returns either operand, depending on the
// position in the tensor.
type extreme = func(x, y *graph.Node) *graph.Node

// clipChain is a chain of maxima and minima of source with constants. value is its result, which is right only where source
// is not NaN.
type clipChain struct{ source, value *graph.Node }

// goExtreme is a maximum or minimum that is NaN if either operand is. In a clip chain only the source has to be tested for
// NaN, which takes one test after the last operation. The graph has such tests after the other operations, too, but nothing
// reads their results, so the backend does not execute them.
func goExtreme(f extreme) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		x, y := n.Args[0], n.Args[1]
		if l.ranges[x].nan && !l.ranges[y].nan && l.p.TypeOf(y).IsScalar() {
			return l.clip(f, args[0], args[1])
		}
		if l.ranges[y].nan && !l.ranges[x].nan && l.p.TypeOf(x).IsScalar() {
			return l.clip(f, args[1], args[0])
		}
		out := f(args[0], args[1])
		for i, id := range n.Args {
			switch x := args[i]; {
			case !l.ranges[id].nan:
			case slices.Equal(x.Shape().Dimensions, out.Shape().Dimensions):
				out = l.keepNaN(x, out)
			default: // x is repeated
				out = graph.Add(out, l.keepNaN(x, l.scalar(0)))
			}
		}
		return out
	}
}

// clip appends the maximum or minimum of x and a constant to the clip chain that ends in x, if there is one.
func (l *lowering) clip(f extreme, x, bound *graph.Node) *graph.Node {
	c, ok := l.clips[x]
	if !ok {
		c = clipChain{source: x, value: x}
	}
	c.value = f(c.value, bound)
	out := l.keepNaN(c.source, c.value)
	l.clips[out] = c
	return out
}

// keepNaN returns y where x is a number, and NaN where x is. y has the shape of x, or is a scalar. A comparison with a scalar
// is the fastest test for NaN.
func (l *lowering) keepNaN(x, y *graph.Node) *graph.Node {
	number := graph.LessOrEqual(x, l.scalar(math.Inf(1)))
	return graph.Where(number, y, x)
}

// goReduceExtreme is a reduction by maximum or minimum that is NaN if any element is.
// It looks for NaN in the sum of magnitudes, the cheapest reduction.
func goReduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node) rule {
	return func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
		x, r := args[0], l.ranges[n.Args[0]]
		out := reduceExtreme(f, x, n.Attr.Axes)
		if !r.nan {
			return out
		}
		if r.lo < 0 {
			x = graph.Abs(x)
		}
		return l.keepNaN(graph.ReduceSum(x, n.Attr.Axes...), out)
	}
}

// reduceExtreme reduces short rows in two steps. On rows of one or a few vectors, the
// backend's kernel spends most of its time on reducing the last vector.
func reduceExtreme(f func(x *graph.Node, axes ...int) *graph.Node, x *graph.Node, axes []int) *graph.Node {
	const part, longest = 8, 64
	d := dims(x)
	last := len(d) - 1
	if len(axes) != 1 || axes[0] != last || d[last] <= part || d[last] > longest || d[last]%part != 0 {
		return f(x, axes...)
	}
	rows := x.Shape().Size() / d[last]
	x = f(graph.Reshape(x, rows, d[last]/part, part), 1)
	if engine.FloatLanes() <= part {
		return graph.Reshape(f(x, 1), d[:last]...)
	}
	// The kernel reads a part of a vector with a load of a whole one (archsimd's LoadFloat32x16Part), which faults where
	// memory ends behind the tensor: one more row of zeros, and it does not.
	x = graph.Concatenate([]*graph.Node{x, graph.Zeros(x.Graph(), shapes.Make(x.DType(), 1, part))}, 0)
	return graph.Reshape(graph.Slice(f(x, 1), graph.AxisRange(0, rows)), d[:last]...)
}

// goSelect gives every operand that is not a scalar the full shape: Where is
// vectorized for these and otherwise computes an index for each element.
func goSelect(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	full := make([]*graph.Node, len(args))
	for i, a := range args {
		full[i] = l.repeat(a, n.Type.Shape)
	}
	return graph.Where(full[0], full[1], full[2])
}

func goBroadcast(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if args[0].IsScalar() {
		return graph.BroadcastToDims(args[0], n.Type.Shape...)
	}
	return l.repeat(spread(n, args[0]), n.Type.Shape)
}

// repeat repeats x along its axes of size 1 to the given shape, which has the same rank. A scalar stays a scalar. The Go
// backend has no vectorized broadcast, but its vectorized sums repeat operands: so repeat adds zeros.
func (l *lowering) repeat(x *graph.Node, shape []int) *graph.Node {
	if x.IsScalar() || slices.Equal(x.Shape().Dimensions, shape) {
		return x
	}
	others := dims(x)
	for i, d := range others {
		if d == 1 {
			others[i] = shape[i]
		} else {
			others[i] = 1
		}
	}
	switch x.DType() {
	case dtypes.Bool:
		bytes := graph.BitwiseOr(graph.Bitcast(x, dtypes.Uint8), storedConstant(l.g, make([]uint8, product(others)), others))
		return graph.Bitcast(bytes, dtypes.Bool)
	case dtypes.Int32:
		return graph.Add(x, storedConstant(l.g, make([]int32, product(others)), others))
	case dtypes.Uint32:
		return graph.Add(x, storedConstant(l.g, make([]uint32, product(others)), others))
	default: // x − 0 is x, also when it is −0
		return graph.Sub(x, l.zeros(others...))
	}
}

// zeros is a tensor of zeros, all stored in memory: a zero that is broadcast by the backend would not make a sum repeat its
// other operand.
func (l *lowering) zeros(shape ...int) *graph.Node {
	return l.table(make([]float64, product(shape)), shape...)
}

func product(shape []int) int { return shapes.Make(dtypes.Float32, shape...).Size() }

// goDot avoids a transposition. The backend multiplies [batch, left, contracted] with [batch, contracted, right] or with
// [batch, right, contracted]. It transposes both operands when either has its axes in another order. If only the left one
// does, goDot transposes that one before the product.
func goDot(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	a, x := n.Attr, args[0]
	if len(a.LhsContract) == 0 { // each operand gets an axis of size 1 that is contracted
		x, y := graph.InsertAxes(x, -1), graph.InsertAxes(args[1], -1)
		return graph.DotGeneral(x, []int{x.Rank() - 1}, a.LhsBatch, y, []int{y.Rank() - 1}, a.RhsBatch)
	}
	batch, contracted := len(a.LhsBatch), len(a.LhsContract)
	order := slices.Concat(a.LhsBatch, program.OtherAxes(x.Rank(), a.LhsBatch, a.LhsContract), a.LhsContract)
	y := slices.Concat(a.RhsBatch, a.RhsContract)
	if slices.IsSorted(order) || !slices.Equal(y, program.OtherAxes(batch+contracted)) {
		return lowerDot(l, n, args)
	}
	x = graph.TransposeAllAxes(x, order...)
	return graph.DotGeneral(x, program.OtherAxes(x.Rank())[x.Rank()-contracted:], program.OtherAxes(batch), args[1], a.RhsContract, a.RhsBatch)
}

// The fastest rotation on the Go backend multiplies rows of goTrail elements by
// their matrix and applies the other factors from the left, by small products
// that need no transposition. Only blocks up to goSingle are faster in one
// product. The sizes are measured.
const (
	goSingle = 64
	goTrail  = 32
	goLead   = 32
)

func goHadamard(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	block, trail := n.Attr.Block, goTrail
	if block <= goSingle {
		trail = block
	}
	axis := 0
	if trail <= goTrail { // this form packs nothing
		axis = 1
	}
	x := l.rotateRows(args[0], trail, axis)
	for lead := block / trail; lead > 1; {
		size := goFactor(lead)
		x = l.rotateColumns(graph.Reshape(x, int(n.Type.Size())/(size*trail), size, trail))
		lead, trail = lead/size, trail*size
	}
	return graph.Reshape(x, n.Type.Shape...)
}

// goFactor splits a leading factor into factors of about equal size, at most goLead, and returns the first of them.
func goFactor(lead int) int {
	total, most := bits.Len(uint(lead))-1, bits.Len(uint(goLead))-1
	parts := (total + most - 1) / most
	return 1 << ((total + parts - 1) / parts)
}

// rotateColumns multiplies each matrix of x[count, size, …] from the left by the Walsh–Hadamard matrix. The left operand of
// the product is that matrix, repeated count times by a sum with zeros. It must not be a constant, which would occupy memory
// between the steps, too, and of which the backend would keep a packed copy for every product. So it is computed in each
// step, and a barrier makes it depend on x.
func (l *lowering) rotateColumns(x *graph.Node) *graph.Node {
	count, size := x.Shape().Dim(0), x.Shape().Dim(1)
	left := sharedNode(l.g, fmt.Sprint("repeated hadamard ", l.float.dtype, size, count), func() *graph.Node {
		repeated := graph.Add(l.zeros(count, 1, 1), graph.Reshape(l.hadamard(size), 1, size, size))
		return graph.SchedulingBarrier(repeated, x)
	})
	return graph.DotGeneral(left, []int{2}, []int{0}, x, []int{1}, []int{0})
}
