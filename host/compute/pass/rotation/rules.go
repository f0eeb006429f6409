package rotation

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// commutes reports whether H·op(a, b, …) is op of the same operands with some of them
// rotated, and which these are. A rotation works on runs of block elements in row-major
// order: it is linear, and shapes do not matter to it as long as they keep the runs whole. For the
// rotation itself the result is its operand.
func (u *undoer) commutes(n *program.Node) (rotated []int, ok bool) {
	if n == nil { // an input
		return nil, false
	}
	switch n.Op {
	case program.OpHadamard:
		return nil, n.Attr.Block == u.block
	case program.OpNeg, program.OpReshape, program.OpStopGradient:
		return []int{0}, true
	case program.OpMul:
		if u.even(n.Args[0]) && u.full(n, 1) {
			return []int{1}, true
		}
		return []int{0}, u.even(n.Args[1]) && u.full(n, 0)
	case program.OpDiv, program.OpLdexp:
		return []int{0}, u.even(n.Args[1]) && u.full(n, 0)
	case program.OpAdd, program.OpSub:
		return []int{0, 1}, u.full(n, 0) && u.full(n, 1)
	case program.OpSelect:
		return u.selection(n)
	}
	return nil, false
}

// selection rotates the operands of a select whose condition holds for whole runs. Zeros and NaN need no rotation.
func (u *undoer) selection(n *program.Node) (rotated []int, ok bool) {
	if !u.even(n.Args[0]) {
		return nil, false
	}
	for i := 1; i <= 2; i++ {
		switch {
		case u.blank(n.Args[i]):
		case u.full(n, i):
			rotated = append(rotated, i)
		default:
			return nil, false
		}
	}
	return rotated, len(rotated) > 0
}

// full reports whether an operand has the type of the result and is not repeated.
func (u *undoer) full(n *program.Node, operand int) bool {
	return u.p.TypeOf(n.Args[operand]).Equal(n.Type)
}

// even reports whether a value is the same along the last axis, or is a scalar.
func (u *undoer) even(id program.ID) bool {
	t := u.p.TypeOf(id)
	last := t.Rank() - 1
	if last < 0 || t.Shape[last] == 1 {
		return true
	}
	n := u.p.Node(id)
	switch {
	case n == nil:
		return false
	case n.Op == program.OpConstant:
		return len(n.Attr.Floats)+len(n.Attr.Ints) == 1
	case n.Op == program.OpBroadcast:
		i := slices.Index(n.Attr.Axes, last)
		return i < 0 || u.p.TypeOf(n.Args[0]).Shape[i] == 1
	}
	return false
}

// blank reports whether a value is 0 or NaN in every element, which no rotation
// changes.
func (u *undoer) blank(id program.ID) bool {
	n := u.p.Node(id)
	if n == nil || n.Op != program.OpConstant || len(n.Attr.Floats) != 1 {
		return false
	}
	v := n.Attr.Floats[0]
	return v == 0 || math.IsNaN(v)
}
