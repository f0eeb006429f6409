package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/compute/lower"
)

// linear returns x·wᵀ, [tokens, out], for x [tokens, in] and w [out, in].
func linear(x, w *graph.Node) *graph.Node {
	y, ok := lower.ProductOfCodes(x, w, false)
	if !ok {
		y = timesTransposed(x, w)
	}
	return linearFrom(y, x, w)
}

// addLinear returns sum + x·wᵀ.
func addLinear(sum, x, w *graph.Node) *graph.Node {
	total, ok := lower.AddProductOfCodes(sum, x, w)
	if !ok {
		return graph.Add(sum, linear(x, w))
	}
	return autodiff.Custom(total, []*graph.Node{sum, x, w}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{dy, times(dy, w), weightGradient(dy, x)}
	})
}

// linearRounded is linear with a result in the precision of the device, for what is not a sum of many such results.
func linearRounded(x, w *graph.Node) *graph.Node { return linearFrom(timesRounded(x, w), x, w) }

// timesRounded is x·wᵀ in the precision of the device.
func timesRounded(x, w *graph.Node) *graph.Node {
	if y, ok := lower.ProductOfCodes(x, w, true); ok {
		return y
	}
	return engine.DotGeneralRounded(x, []int{1}, nil, w, []int{1}, nil)
}

// linearFrom gives the product y = x·wᵀ its gradients.
func linearFrom(y, x, w *graph.Node) *graph.Node {
	return autodiff.Custom(y, []*graph.Node{x, w}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{times(dy, w), weightGradient(dy, x)}
	})
}

// weightGradient returns dyᵀ·x, [out, in], for dy [tokens, out] and x [tokens, in]. On the CPU one of the two is
// transposed in memory: the one that costs less. With x, the result has to be transposed too.
func weightGradient(dy, x *graph.Node) *graph.Node {
	if !engine.OnCPU(dy.Graph()) {
		return transposedTimes(dy, x)
	}
	tokens, out, in := dy.Shape().Dim(0), dy.Shape().Dim(1), x.Shape().Dim(1)
	if tokens*out <= tokens*in+in*out {
		return transposedTimes(dy, x)
	}
	return transposed(transposedTimes(x, dy))
}

// transposedTimes returns aᵀ·b for two matrices. Only the CPU has to transpose for it.
func transposedTimes(a, b *graph.Node) *graph.Node {
	if engine.OnCPU(a.Graph()) {
		return times(transposed(a), b)
	}
	return engine.DotGeneral(a, []int{0}, nil, b, []int{0}, nil)
}

// times returns a·b over the last two axes of both; leading axes, if any, are batch axes. As all products of the models
// it is in the precision of the device.
func times(a, b *graph.Node) *graph.Node {
	rank := a.Rank()
	batch := leadingAxes(rank - 2)
	return engine.DotGeneral(a, []int{rank - 1}, batch, b, []int{rank - 2}, batch)
}

// timesTransposed returns a·bᵀ over the last two axes of both; leading axes, if any, are batch axes.
func timesTransposed(a, b *graph.Node) *graph.Node {
	rank := a.Rank()
	batch := leadingAxes(rank - 2)
	return engine.DotGeneral(a, []int{rank - 1}, batch, b, []int{rank - 1}, batch)
}

func leadingAxes(n int) []int {
	axes := make([]int, n)
	for i := range axes {
		axes[i] = i
	}
	return axes
}
