package inspect

import (
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// cost is the total cost of a program.
type cost struct {
	operations int64 // results of elementwise operations, rotation additions, and reduced elements
	products   int64 // multiplications in matrix products and factorizations
	passes     int   // number of sequential reads of the tensor
}

// costOf returns the cost of a program after simplification. A pass over the tensor ends where a
// result depends on more than the corresponding elements: at a reduction, a product, a rotation or
// a transposition. Elementwise operations in between count as fused into one pass.
func costOf(p *program.Program) cost {
	if s, err := transform.Simplify(p); err == nil {
		p = s
	}
	var c cost
	passes := transform.Interpret(p, slices.Repeat([]int{1}, len(p.Inputs)), func(_ program.ID, n *program.Node, args []int) int {
		c.add(p, n)
		at := slices.Max(append(args, 0))
		info, _ := n.Op.Info()
		whole := info.Class == program.ClassReduce || info.Class == program.ClassLinear || info.Class == program.ClassLinalg
		if whole && p.TypeOf(n.Args[0]).Size() > 1 || n.Op == program.OpTranspose { // what follows needs another pass
			at++
		}
		return at
	})
	for _, o := range p.Outputs {
		if at := passes[o.Value]; p.TypeOf(o.Value).Size() > 1 {
			c.passes = max(c.passes, at)
		}
	}
	return c
}

func (c *cost) add(p *program.Program, n *program.Node) {
	info, _ := n.Op.Info()
	size := n.Type.Size()
	switch info.Class {
	case program.ClassUnary, program.ClassBinary, program.ClassCompare, program.ClassElementwise:
		c.operations += size
	case program.ClassReduce:
		c.operations += p.TypeOf(n.Args[0]).Size()
	case program.ClassLinalg:
		if n.Op == program.OpSortColumns {
			return
		}
		shape := n.Type.Shape
		c.products += p.TypeOf(n.Args[0]).Size() * int64(shape[len(shape)-1])
	case program.ClassLinear:
		if n.Op == program.OpHadamard { // additions, by the fast transform
			c.operations += size * int64(bits.Len(uint(n.Attr.Block))-1)
			return
		}
		for _, a := range n.Attr.LhsContract {
			size *= int64(p.TypeOf(n.Args[0]).Shape[a])
		}
		c.products += size
	}
}
