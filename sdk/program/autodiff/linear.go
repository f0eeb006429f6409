package autodiff

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// hadamard is symmetric.
func (t *tape) hadamard(n *program.Node, _ program.ID, dy program.Value) {
	t.add(n.Args[0], t.w.Apply(program.OpHadamard, n.Attr, program.Type{}, dy))
}

func (t *tape) product(n *program.Node, _ program.ID, dy program.Value) {
	x, y := t.values[n.Args[0]], t.values[n.Args[1]]
	a := n.Attr
	batch := len(a.LhsBatch)
	left := program.OtherAxes(x.Type().Rank(), a.LhsBatch, a.LhsContract)
	right := program.OtherAxes(y.Type().Rank(), a.RhsBatch, a.RhsContract)
	if t.active[n.Args[0]] {
		t.add(n.Args[0], t.factor(dy, y, factor{
			batch: a.RhsBatch, contract: right, first: batch + len(left),
			ownBatch: a.LhsBatch, ownFree: left, ownContract: a.LhsContract, otherContract: a.RhsContract,
		}))
	}
	if t.active[n.Args[1]] {
		t.add(n.Args[1], t.factor(dy, x, factor{
			batch: a.LhsBatch, contract: left, first: batch,
			ownBatch: a.RhsBatch, ownFree: right, ownContract: a.RhsContract, otherContract: a.LhsContract,
		}))
	}
}

// factor describes the product that gives one operand's cotangent from dy and the
// other operand. dy has the batch axes first, then the free axes of the left
// operand, then those of the right.
type factor struct {
	batch, contract []int // of the other operand: batch axes, and free axes, summed with those of dy
	first           int   // the first of those axes in dy
	// ownBatch, ownFree and ownContract are the axes of the operand that is wanted;
	// otherContract those of the other operand that were summed with ownContract.
	ownBatch, ownFree, ownContract, otherContract []int
}

// factor multiplies dy and other in the order that leaves the axes nearest to
// where the operand has them, so that a transpose is needed only if neither does.
func (t *tape) factor(dy, other program.Value, f factor) program.Value {
	dyBatch, dyContract := count(0, len(f.batch)), count(f.first, len(f.contract))
	// The free axes of other come out in its order; matched says with which own axis
	// each of them was summed.
	var matched []int
	for _, axis := range slices.Sorted(slices.Values(f.otherContract)) {
		matched = append(matched, f.ownContract[slices.Index(f.otherContract, axis)])
	}
	// Position i of the product holds the operand's axis layout[i].
	if layout := slices.Concat(f.ownBatch, matched, f.ownFree); slices.IsSorted(layout) {
		return t.dot(other, dy, f.contract, dyContract, f.batch, dyBatch)
	}
	product := t.dot(dy, other, dyContract, f.contract, dyBatch, f.batch)
	return t.transpose(product, inverse(slices.Concat(f.ownBatch, f.ownFree, matched)))
}

func (t *tape) dot(x, y program.Value, xContract, yContract, xBatch, yBatch []int) program.Value {
	return t.w.Apply(program.OpDot, program.Attr{
		LhsContract: xContract, RhsContract: yContract, LhsBatch: xBatch, RhsBatch: yBatch,
	}, program.Type{}, x, y)
}

// count lists n numbers from first.
func count(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}
