package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
)

func linear(x, w *graph.Node) *graph.Node { return withLinearGradient(product(x, w), x, w) }

// product returns x·wᵀ, without a gradient.
func product(x, w *graph.Node) *graph.Node {
	if y, ok := lower.ProductOfCodes(x, w, false); ok {
		return y
	}
	return matMulTransposed(x, w)
}

// A branch reads the residual stream through a norm, and ends in a product that is added to the
// stream. If the adjoints of a norm are computed in one pass over memory, that pass also adds the
// adjoint of the stream, which is computed first.
type branch struct {
	joins bool        // the norm adds the stream's adjoint
	dSum  *graph.Node // adjoint of the stream after the branch, until the norm takes it
}

func (b *branch) norm(x, gain *graph.Node, epsilon float64) *graph.Node {
	b.joins = lower.HasKernels(x.Graph())
	return normOf(x, gain, epsilon, b)
}

// add returns sum + x·wᵀ, the stream after the branch.
func (b *branch) add(sum, x, w *graph.Node) *graph.Node {
	if !b.joins {
		return graph.Add(sum, linear(x, w))
	}
	total := graph.Add(sum, product(x, w))
	return engine.Custom(total, []*graph.Node{x, w}, func(dy *graph.Node) []*graph.Node {
		b.dSum = dy
		dx, dw := linearGradients(dy, x, w)
		return []*graph.Node{dx, dw}
	})
}

// take returns the adjoint that the norm must add, or nil if there is none or it was taken before.
func (b *branch) take() (dSum *graph.Node) {
	if b != nil {
		dSum, b.dSum = b.dSum, nil
	}
	return dSum
}

// linearRounded is like linear, but rounds the result to the precision of the device. It is used
// for results that are not added to the residual stream.
func linearRounded(x, w *graph.Node) *graph.Node {
	return withLinearGradient(matMulTransposedRounded(x, w), x, w)
}

// matMulTransposedRounded returns x·wᵀ, rounded to the precision of the device.
func matMulTransposedRounded(x, w *graph.Node) *graph.Node {
	if y, ok := lower.ProductOfCodes(x, w, true); ok {
		return y
	}
	return engine.DotGeneralRounded(x, []int{1}, nil, w, []int{1}, nil)
}

func withLinearGradient(y, x, w *graph.Node) *graph.Node {
	return engine.Custom(y, []*graph.Node{x, w}, func(dy *graph.Node) []*graph.Node {
		dx, dw := linearGradients(dy, x, w)
		return []*graph.Node{dx, dw}
	})
}

func transposedMatMul(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{0}, nil, b, []int{0}, nil)
}

// matMul returns a·b. As in all products here, operands are rounded to the device's precision.
func matMul(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{1}, nil, b, []int{0}, nil)
}

func matMulTransposed(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{1}, nil, b, []int{1}, nil)
}

func transpose(x *graph.Node) *graph.Node { return graph.TransposeAllAxes(x, 1, 0) }
