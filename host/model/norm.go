package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine/autodiff"
)

// rmsNorm returns x·gain/√(mean(x²)+epsilon), the mean being over the last axis of x [tokens, width]; gain is [width]
// (Zhang and Sennrich, 2019).
func rmsNorm(x, gain *graph.Node, epsilon float64) *graph.Node {
	value, back := normalizeRows(x, gain, epsilon)
	return autodiff.Custom(value, []*graph.Node{x, gain}, func(dy *graph.Node) []*graph.Node {
		dx, dGain := back(dy)
		return []*graph.Node{dx, dGain}
	})
}

// normalizeRows is the value of [rmsNorm], and its adjoint.
func normalizeRows(x, gain *graph.Node, epsilon float64) (value *graph.Node, back func(dy *graph.Node) (dx, dGain *graph.Node)) {
	gainRow := graph.InsertAxes(gain, 0)
	meanSquare := graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)
	scale := graph.Reciprocal(graph.Sqrt(graph.AddScalar(meanSquare, epsilon)))
	normalized := graph.Mul(x, scale)
	return graph.Mul(normalized, gainRow), func(dy *graph.Node) (*graph.Node, *graph.Node) {
		// With n = x·scale: ∂n/∂x = scale·(1 − n·nᵀ/width), and y = n·gain.
		product := graph.Mul(dy, normalized)
		projection := graph.ReduceAndKeep(graph.Mul(product, gainRow), graph.ReduceMean, -1)
		dx := graph.Mul(graph.Sub(graph.Mul(dy, gainRow), graph.Mul(normalized, projection)), scale)
		return dx, graph.ReduceSum(product, 0)
	}
}
