package lower

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

// goDot avoids a transposition. The backend multiplies [batch, left, contracted]
// with [batch, contracted, right] or [batch, right, contracted]. When an operand has
// another form, it transposes both; here only the left one is transposed where that
// is enough.
func goDot(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	a, x := n.Attr, args[0]
	if len(a.LhsContract) == 0 {
		return goOuter(l, n, args)
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

// goOuter is a product without contracted axes: each operand gets one of size 1.
func goOuter(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	x := graph.InsertAxes(args[0], -1)
	y := graph.InsertAxes(args[1], -1)
	return graph.DotGeneral(x, []int{x.Rank() - 1}, n.Attr.LhsBatch, y, []int{y.Rank() - 1}, n.Attr.RhsBatch)
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

// goFactor is the first of the factors, about equal and at most goLead, that a
// leading factor is split in.
func goFactor(lead int) int {
	total, most := bits.Len(uint(lead))-1, bits.Len(uint(goLead))-1
	parts := (total + most - 1) / most
	return 1 << ((total + parts - 1) / parts)
}

// rotateColumns multiplies each matrix of x[count, size, …] from the left by the
// Walsh–Hadamard matrix. The left operand repeats one matrix. It is a sum with
// zeros, computed in each step, as a constant would occupy memory all the time. The
// barrier makes it depend on a node that is not constant: for constants the backend
// keeps a packed copy for every product.
func (l *lowering) rotateColumns(x *graph.Node) *graph.Node {
	count, size := x.Shape().Dim(0), x.Shape().Dim(1)
	left := shared(l.g, fmt.Sprint("repeated hadamard ", l.float.dtype, size, count), func() *graph.Node {
		repeated := graph.Add(l.zeros(count, 1, 1), graph.Reshape(l.hadamard(size), 1, size, size))
		return graph.SchedulingBarrier(repeated, x)
	})
	return graph.DotGeneral(left, []int{2}, []int{0}, x, []int{1}, []int{0})
}
