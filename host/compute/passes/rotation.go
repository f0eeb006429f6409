package passes

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// A quantizer that rotates quantizes z = Hx and returns x̂ = Hẑ. In a product of two
// tensors that are rotated alike along the contracted axis, the rotations cancel, because
// H is orthogonal and symmetric:
//
//	x̂·ŵᵀ = ẑx·H·Hᵀ·ẑwᵀ = ẑx·ẑwᵀ
//
// so both may stay rotated (the half variant of QuEST, Panferov et al. 2025). Authors need not
// declare that their programs end in a rotation; this package detects it.

// EndingRotation returns the block size of the rotation in which an output of a valid program ends,
// or 0 if there is none. It is the largest size for which [UndoRotation] needs no more rotations
// than the program. Between the rotation and the output there may be operations that commute with
// it: reshapes that keep blocks whole, scaling and selection that are constant along each block,
// and sums of such values.
func EndingRotation(p *program.Program, output string) int {
	id, ok := p.Output(output)
	if !ok {
		return 0
	}
	var blocks []int
	for _, n := range p.Nodes {
		if n.Op == program.OpHadamard && n.Attr.Block > 1 {
			blocks = append(blocks, n.Attr.Block)
		}
	}
	slices.Sort(blocks)
	for _, b := range slices.Backward(slices.Compact(blocks)) {
		if newUndoer(p, b).cost(id) == 0 {
			return b
		}
	}
	return 0
}

// UndoRotation returns p, which must be valid, with the named outputs rotated once more by the
// given block size. A rotation is its own inverse: if an output ends in a rotation of that block
// size, both rotations are removed.
//
// This works for surrogates as well as for values. If v = Hz, the gradient with respect to z is the
// rotated gradient with respect to v. So S, given the gradient with respect to v, yields the same
// gradient as H·S, given the gradient with respect to z, and the rotations of the backward pass
// cancel, too.
//
// Values are the same in exact arithmetic. They have the same bits if only one rotation is removed.
// It is an error if an output does not exist, is not a float, or has rows whose length is not a
// multiple of the block.
func UndoRotation(p *program.Program, block int, outputs ...string) (*program.Program, error) {
	u := newUndoer(p, block)
	for _, name := range outputs {
		id, ok := p.Output(name)
		if !ok {
			return nil, fmt.Errorf("program %q has no output %q", p.Name, name)
		}
		if t := p.TypeOf(id); u.cost(id) == impossible {
			return nil, fmt.Errorf("program %q: output %q is %s: want floats "+
				"with a row length that is a multiple of %d", p.Name, name, t, block)
		}
	}
	// All of p is copied. Nodes that no output needs any more are dropped at the end, and equal
	// operations are merged: a rotation of x that p already contains costs nothing.
	u.w = program.NewSimplifier(p.Name)
	u.values = transform.Copy(u.w, p, transform.Inputs(u.w, p, nil))
	for _, o := range p.Outputs {
		v := u.values[o.Value]
		if slices.Contains(outputs, o.Name) {
			v = u.rotatedValue(o.Value)
		}
		u.w.Output(o.Name, v)
	}
	return u.w.Build()
}

// ReceiveRotated returns p, which must be valid, changed so that the named input is already rotated
// by the given block size. Where p rotates the input in the same way, it uses the input as it is;
// elsewhere it rotates the input back. It is the counterpart of [UndoRotation] for a quantizer's
// own backward pass. It is an error if the input does not exist, is not a float, or has rows whose
// length is not a multiple of the block.
func ReceiveRotated(p *program.Program, block int, input string) (*program.Program, error) {
	in := p.Input(input)
	if in < 0 {
		return nil, fmt.Errorf("program %q has no input %q", p.Name, input)
	}
	if t := p.Inputs[in].Type; !divides(block, t) {
		return nil, fmt.Errorf("program %q: input %q is %s: want floats "+
			"with a row length that is a multiple of %d", p.Name, input, t, block)
	}
	w := program.NewSimplifier(p.Name)
	given := transform.Inputs(w, p, nil)
	rotated := given[in]
	given[in] = w.Apply(program.OpHadamard, program.Attr{Block: block}, program.Type{}, rotated)
	for i, n := range p.Nodes {
		if n.Op == program.OpHadamard && n.Attr.Block == block && int(n.Args[0]) == in {
			given[len(p.Inputs)+i] = rotated
		}
	}
	values := transform.Copy(w, p, given)
	for _, o := range p.Outputs {
		w.Output(o.Name, values[o.Value])
	}
	return w.Build()
}

// divides reports whether values of type t are floats whose rows consist of whole blocks.
func divides(block int, t program.Type) bool {
	return t.DType == program.Float && t.Rank() > 0 && block > 0 && t.Shape[t.Rank()-1]%block == 0
}

// RotatedElements counts the elements of all rotations in a program, which is the cost of rotating.
func RotatedElements(p *program.Program) int64 {
	var sum int64
	for _, n := range p.Nodes {
		if n.Op == program.OpHadamard {
			sum += n.Type.Size()
		}
	}
	return sum
}

// impossible is the cost of rotating a value whose row length is not a multiple of the block.
const impossible = math.MaxInt64

// undoer rewrites a program so that outputs are rotated once more.
type undoer struct {
	p      *program.Program
	block  int
	w      *program.Builder
	values []program.Value // of p, in the new program
	costs  map[program.ID]int64
	done   map[program.ID]program.Value
}

func newUndoer(p *program.Program, block int) *undoer {
	return &undoer{p: p, block: block,
		costs: map[program.ID]int64{}, done: map[program.ID]program.Value{}}
}

// cost returns the number of elements that must be rotated to compute the rotated value of id.
func (u *undoer) cost(id program.ID) int64 {
	if c, ok := u.costs[id]; ok {
		return c
	}
	t := u.p.TypeOf(id)
	cost := int64(impossible)
	if divides(u.block, t) {
		cost = min(t.Size(), u.operandCost(id))
	}
	u.costs[id] = cost
	return cost
}

// operandCost returns the cost of rotating the operands instead of the result.
func (u *undoer) operandCost(id program.ID) int64 {
	n := u.p.Node(id)
	rotated, ok := u.commutes(n)
	if !ok {
		return impossible
	}
	var sum int64
	for _, i := range rotated {
		c := u.cost(n.Args[i])
		if c == impossible {
			return impossible
		}
		sum += c
	}
	return sum
}

// rotatedValue adds the rotated value of id to the new program in the cheaper way.
func (u *undoer) rotatedValue(id program.ID) program.Value {
	if v, ok := u.done[id]; ok {
		return v
	}
	var v program.Value
	n := u.p.Node(id)
	switch rotated, _ := u.commutes(n); {
	case u.operandCost(id) >= u.p.TypeOf(id).Size():
		v = u.w.Apply(program.OpHadamard, program.Attr{Block: u.block}, program.Type{}, u.values[id])
	case n.Op == program.OpHadamard:
		v = u.values[n.Args[0]]
	default:
		args := make([]program.Value, len(n.Args))
		for i, a := range n.Args {
			if args[i] = u.values[a]; slices.Contains(rotated, i) {
				args[i] = u.rotatedValue(a)
			}
		}
		v = u.w.Apply(n.Op, n.Attr, n.Type, args...)
	}
	u.done[id] = v
	return v
}

// commutes reports whether H·op(a, b, …) equals op with some of its operands rotated, and which
// ones. A rotation works on runs of block elements in row-major order: it is linear, and shapes do
// not matter as long as runs stay whole. For the operation H itself, H·H(a) = a.
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
		if u.constantAlongRow(n.Args[0]) && u.hasResultType(n, 1) {
			return []int{1}, true
		}
		return []int{0}, u.constantAlongRow(n.Args[1]) && u.hasResultType(n, 0)
	case program.OpDiv, program.OpLdexp:
		return []int{0}, u.constantAlongRow(n.Args[1]) && u.hasResultType(n, 0)
	case program.OpAdd, program.OpSub:
		return []int{0, 1}, u.hasResultType(n, 0) && u.hasResultType(n, 1)
	case program.OpSelect:
		// The condition must be constant along each run. Zeros and NaN need no rotation.
		if !u.constantAlongRow(n.Args[0]) {
			return nil, false
		}
		for i := 1; i <= 2; i++ {
			x := u.p.Node(n.Args[i])
			switch {
			case x != nil && x.Op == program.OpConstant && len(x.Attr.Floats) == 1 &&
				(x.Attr.Floats[0] == 0 || math.IsNaN(x.Attr.Floats[0])):
			case u.hasResultType(n, i):
				rotated = append(rotated, i)
			default:
				return nil, false
			}
		}
		return rotated, len(rotated) > 0
	}
	return nil, false
}

func (u *undoer) hasResultType(n *program.Node, operand int) bool {
	return u.p.TypeOf(n.Args[operand]).Equal(n.Type)
}

// constantAlongRow reports whether a value is a scalar or constant along the last axis.
func (u *undoer) constantAlongRow(id program.ID) bool {
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
