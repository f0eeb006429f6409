package model

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/sdk/program"
)

// swiGLU returns silu(a)·b, where silu(a) = a·σ(a) and σ is the logistic function (Shazeer, 2020).
func swiGLU(a, b *graph.Node) *graph.Node {
	gate := silu(a)
	adjoints := func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{siluGradient(gate, a, graph.Mul(dy, b)), graph.Mul(dy, gate)}
	}
	y := autodiff.Custom(graph.Mul(gate, b), []*graph.Node{a, b}, adjoints)
	if lower.HasKernels(a.Graph()) {
		forward, backward, err := gatePrograms(a.Shape().Dim(0), a.Shape().Dim(1))
		if err != nil {
			panic(err)
		}
		lower.Source{Inputs: []*graph.Node{a, b}, InBFloat16: true, Forward: forward, Backward: backward,
			Adjoint: func(_ map[string]*graph.Node, dy *graph.Node) []*graph.Node { return adjoints(dy) }}.AttachTo(y)
	}
	return y
}

// gatePrograms say how kernels compute [swiGLU] and its adjoints.
func gatePrograms(rows, width int) (forward, backward *program.Program, err error) {
	t := program.FloatType(rows, width)
	b := program.NewBuilder("gate")
	x, y := b.Input("a", t), b.Input("b", t)
	b.Output(lower.SourceValue, x.Mul(logistic(x)).Mul(y))
	if forward, err = b.Build(); err != nil {
		return nil, nil, err
	}
	b = program.NewBuilder("gate.backward")
	x, y, dy := b.Input("a", t), b.Input("b", t), b.Input("d", t)
	sigma := logistic(x)
	slope := sigma.Mul(x.Mul(b.Const(1).Sub(sigma)).Shift(1))
	b.Output("da", dy.Mul(y).Mul(slope))
	b.Output("db", dy.Mul(x.Mul(sigma)))
	backward, err = b.Build()
	return forward, backward, err
}

// logistic is 1/(1 + e⁻ˣ).
func logistic(x program.Value) program.Value {
	one := x.Builder().Const(1)
	return one.Div(x.Neg().Exp().Add(one))
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
