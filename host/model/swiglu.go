package model

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine/autodiff"
)

// swiGLU returns silu(a)·b, where silu(a) = a·σ(a) and σ is the logistic function (Shazeer, 2020).
func swiGLU(a, b *graph.Node) *graph.Node {
	gate := silu(a)
	return autodiff.Custom(graph.Mul(gate, b), []*graph.Node{a, b}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{siluGradient(gate, a, graph.Mul(dy, b)), graph.Mul(dy, gate)}
	})
}

// siluConfig selects silu among the activations that backends offer as one operation.
var siluConfig = compute.ActivationConfig{Type: compute.ActivationSilu}

// silu returns a·σ(a), in one pass over the memory if the backend can.
func silu(a *graph.Node) *graph.Node {
	y, _ := graph.InternalFusedOpCaller(
		func() *graph.Node { return graph.BackendFusedActivation(a, siluConfig) },
		func() *graph.Node { return graph.Mul(a, graph.Sigmoid(a)) },
		false)
	return y
}

// siluGradient returns the adjoint of a, given that of y = silu(a).
func siluGradient(y, a, dy *graph.Node) *graph.Node {
	da, _ := graph.InternalFusedOpCaller(
		func() *graph.Node { return graph.BackendFusedActivationVJP(y, a, dy, siluConfig) },
		func() *graph.Node {
			sigma := graph.Sigmoid(a)
			return graph.Mul(dy, graph.Mul(sigma, graph.OnePlus(graph.Mul(a, graph.OneMinus(sigma)))))
		},
		false)
	return da
}

// SwiGLUHidden is the usual number of features inside a feed-forward layer with SwiGLU: 8/3 of the width, so that three
// matrices have as many elements as two of four times the width, rounded up to a multiple of 256.
func SwiGLUHidden(width int) int { return (8*width/3 + 255) / 256 * 256 }
