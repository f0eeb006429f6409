package model

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/sdk/program"
)

// rmsNorm returns x·gain/√(mean(x²)+epsilon), where the mean is over the last axis of x
// [tokens, width]; gain is [width] (Zhang and Sennrich, 2019).
func rmsNorm(x, gain *graph.Node, epsilon float64) *graph.Node {
	return normOf(x, gain, epsilon, nil)
}

// normOf is like rmsNorm. If the branch is not nil, the norm is at its start.
func normOf(x, gain *graph.Node, epsilon float64, of *branch) *graph.Node {
	value, back := normalizeRows(x, gain, epsilon, of)
	y := engine.Custom(value, []*graph.Node{x, gain}, func(dy *graph.Node) []*graph.Node {
		dx, dGain := back(dy)
		return []*graph.Node{dx, dGain}
	})
	if lower.HasKernels(x.Graph()) {
		normSource(x, gain, epsilon, of).AttachTo(y)
	}
	return y
}

// normalizeRows returns the value of [rmsNorm] and the function that computes its adjoints.
func normalizeRows(x, gain *graph.Node, epsilon float64,
	of *branch) (value *graph.Node, back func(dy *graph.Node) (dx, dGain *graph.Node)) {
	gainRow := graph.InsertAxes(gain, 0)
	meanSquare := graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)
	scale := graph.Reciprocal(graph.Sqrt(graph.AddScalar(meanSquare, epsilon)))
	return graph.Mul(graph.Mul(x, scale), gainRow), func(dy *graph.Node) (*graph.Node, *graph.Node) {
		return normAdjoints(x, gainRow, scale, dy, of)
	}
}

// normAdjoints returns the adjoints of x and of the gain, given the adjoint of the value and the
// scale of each row. If the norm starts a branch, it may also add the stream's own adjoint.
func normAdjoints(x, gainRow, scale, dy *graph.Node, of *branch) (dx, dGain *graph.Node) {
	sum := of.take()
	// With n = x·scale: ∂n/∂x = scale·(1 − n·nᵀ/width), and y = n·gain.
	if dx, dGain, ok := kernelAdjoints(x, gainRow, scale, dy, sum); ok {
		return dx, dGain
	}
	normalized := graph.Mul(x, scale)
	product := graph.Mul(dy, normalized)
	projection := graph.ReduceAndKeep(graph.Mul(product, gainRow), graph.ReduceMean, -1)
	dx = graph.Mul(graph.Sub(graph.Mul(dy, gainRow), graph.Mul(normalized, projection)), scale)
	if sum != nil {
		dx = graph.Add(sum, dx)
	}
	return dx, graph.ReduceSum(product, 0)
}

// kernelAdjoints computes [normAdjoints] and adds sum, unless nil, to dx, with one kernel that
// reads each tensor once. It also writes dx in the operand type of products. ok is false if the
// device has no such kernel.
func kernelAdjoints(x, gainRow, scale, dy, sum *graph.Node) (dx, dGain *graph.Node, ok bool) {
	if x.Rank() != 2 {
		return nil, nil, false
	}
	rows, width := x.Shape().Dim(0), x.Shape().Dim(1)
	p, err := normAdjointRows(rows, width, sum != nil)
	if err != nil {
		panic(err)
	}
	inputs, at := []*graph.Node{x, gainRow, scale, dy}, lower.InMemory{"rounded": lower.BFloat16}
	if engine.ShortOperand(dy).DType() == dtypes.BFloat16 {
		at["dy"] = lower.BFloat16
	}
	if sum != nil {
		inputs = append(inputs, sum)
	}
	kernel := lower.Subject{Kind: lower.Norms, Stored: at, Largest: lower.LargestRow,
		Of: func(rows int) (*program.Program, error) { return normAdjointRows(rows, width, sum != nil) }}
	out, ok := lower.Kernel(x.Graph(), kernel, p, rows, inputs, at)
	if !ok {
		return nil, nil, false
	}
	engine.NoteOperand(out["dx"], engine.ShortOperand(out["rounded"]))
	return out["dx"], graph.ReduceSum(graph.Mul(dy, graph.Mul(x, scale)), 0), true
}

// normAdjointRows returns the program that computes dx for [kernelAdjoints], plus sum if joins is
// set.
func normAdjointRows(rows, width int, joins bool) (*program.Program, error) {
	b := program.NewBuilder("norm/backward")
	t := program.FloatType(rows, width)
	x, gain, scale, dy := b.Input("x", t), b.Input("gain", program.FloatType(1, width)),
		b.Input("scale", program.FloatType(rows, 1)), b.Input("dy", t)
	var sum program.Value
	if joins {
		sum = b.Input("sum", t)
	}
	normalized := x.Mul(scale)
	projection := dy.Mul(normalized).Mul(gain).MeanRow()
	dx := dy.Mul(gain).Sub(normalized.Mul(projection)).Mul(scale)
	if joins {
		dx = sum.Add(dx)
	}
	b.Output("dx", dx)
	b.Output("rounded", dx)
	return b.Build()
}

// normSource describes how a kernel computes [rmsNorm]. The gain's gradient is a sum over all rows,
// which kernels cannot compute: the adjoints are a graph, which gets the scales from the kernel.
func normSource(x, gain *graph.Node, epsilon float64, of *branch) lower.Source {
	b := program.NewBuilder("norm")
	rows, gains := b.Input("x", program.FloatType(x.Shape().Dimensions...)),
		b.Input("gain", program.FloatType(1, x.Shape().Dim(1)))
	scale := b.Const(1).Div(rows.Square().MeanRow().Shift(epsilon).Sqrt())
	b.Output(lower.SourceValue, rows.Mul(scale).Mul(gains))
	b.Output("scale", scale)
	forward, err := b.Build()
	if err != nil {
		panic(err)
	}
	gainRow := graph.InsertAxes(gain, 0)
	return lower.Source{Inputs: []*graph.Node{x, gainRow}, Forward: forward,
		Adjoint: func(saved map[string]*graph.Node, dy *graph.Node) []*graph.Node {
			dx, dGain := normAdjoints(x, gainRow, saved["scale"], dy, of)
			return []*graph.Node{dx, graph.InsertAxes(dGain, 0)}
		}}
}

// swiGLU returns silu(a)·b, where silu(a) = a·σ(a) and σ is the logistic function (Shazeer, 2020).
func swiGLU(a, b *graph.Node) *graph.Node {
	gate := silu(a)
	adjoints := func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{siluGradient(gate, a, graph.Mul(dy, b)), graph.Mul(dy, gate)}
	}
	y := engine.Custom(graph.Mul(gate, b), []*graph.Node{a, b}, adjoints)
	if lower.HasKernels(a.Graph()) {
		forward, backward := kernels.GatePrograms("silu", lower.SourceValue, a.Shape().Dimensions)
		gateSource(a, b, forward, backward, adjoints).AttachTo(y)
	}
	return y
}

// geGLU returns gelu(a)·b, where gelu(a) = a/2·(1 + tanh(√(2/π)·(a + 0.044715·a³))) (Hendrycks and
// Gimpel, 2016).
func geGLU(a, b *graph.Node) *graph.Node {
	forward, backward := kernels.GatePrograms("gelu", lower.SourceValue, a.Shape().Dimensions)
	adjoints := func(dy *graph.Node) []*graph.Node {
		out := lower.Lower(a.Graph(), backward, []*graph.Node{a, b, dy})
		return []*graph.Node{out["da"], out["db"]}
	}
	y := lower.Lower(a.Graph(), forward, []*graph.Node{a, b})[lower.SourceValue]
	y = engine.Custom(y, []*graph.Node{a, b}, adjoints)
	if lower.HasKernels(a.Graph()) {
		gateSource(a, b, forward, backward, adjoints).AttachTo(y)
	}
	return y
}

// gateSource describes how kernels compute a gate.
func gateSource(a, b *graph.Node, forward, backward *program.Program,
	adjoints func(dy *graph.Node) []*graph.Node) lower.Source {
	return lower.Source{Inputs: []*graph.Node{a, b}, Rounded: true, Forward: forward,
		Backward: backward,
		Adjoint:  func(_ map[string]*graph.Node, dy *graph.Node) []*graph.Node { return adjoints(dy) }}
}

// siluConfig selects silu among the activations that backends offer as one operation.
var siluConfig = compute.ActivationConfig{Type: compute.ActivationSilu}

// silu returns a·σ(a), in one pass over memory if the backend can.
func silu(a *graph.Node) *graph.Node {
	y, _ := graph.InternalFusedOpCaller(
		func() *graph.Node { return graph.BackendFusedActivation(a, siluConfig) },
		func() *graph.Node { return graph.Mul(a, graph.Sigmoid(a)) },
		false)
	return y
}

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
