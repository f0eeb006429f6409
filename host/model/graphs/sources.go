package graphs

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/sdk/program"
)

// norm lowers RMSNorm of rows, x·gain/√(mean(x²) + ε), with x [rows, features] and gain [1,
// features] (Zhang and Sennrich, 2019).
func norm(c lower.Call) ([]*graph.Node, lower.Back) {
	x, gain, epsilon := c.Args[0], c.Args[1], c.Setting.(float64)
	meanSquare := graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)
	scale := graph.Reciprocal(graph.Sqrt(graph.AddScalar(meanSquare, epsilon)))
	y := graph.Mul(graph.Mul(x, scale), gain)
	if lower.HasKernels(x.Graph()) {
		s := normSource(x, gain, epsilon)
		s.Saved = func(outputs map[string]*graph.Node) { scale = outputs["scale"] }
		s.AttachTo(y)
	}
	return []*graph.Node{y}, func(d []lower.Adjoint, sum *graph.Node) []*graph.Node {
		dy := d[0].Node() // a quantizer may set scale
		dx, dGain := normAdjoints(x, gain, scale, dy, sum)
		return []*graph.Node{dx, graph.InsertAxes(dGain, 0)}
	}
}

// normAdjoints returns the adjoints of x, plus sum unless that is nil, and of the gain, given the
// scale of each row and the adjoint of the value.
func normAdjoints(x, gainRow, scale, dy, sum *graph.Node) (dx, dGain *graph.Node) {
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
	rows, width := x.Shape().Dim(0), x.Shape().Dim(1)
	p, err := normAdjointRows(rows, width, sum != nil)
	if err != nil {
		panic(err)
	}
	inputs, at := []*graph.Node{x, gainRow, scale, dy}, lower.InMemory{"rounded": passes.BFloat16}
	if engine.ShortOperand(dy).DType() == shapes.BFloat16 {
		at["dy"] = passes.BFloat16
	}
	if sum != nil {
		inputs = append(inputs, sum)
	}
	kernel := lower.Subject{Kind: lower.Norms, Stored: at, Largest: triton.LargestRow,
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

// normSource describes how a kernel computes a norm. The gain's gradient is a sum over all rows,
// which kernels cannot compute.
func normSource(x, gain *graph.Node, epsilon float64) *lower.Source {
	b := program.NewBuilder("norm")
	rows, gains := b.Input("x", program.FloatType(x.Shape().Dimensions...)),
		b.Input("gain", program.FloatType(gain.Shape().Dimensions...))
	scale := b.Const(1).Div(rows.Square().MeanRow().Shift(epsilon).Sqrt())
	b.Output(lower.SourceValue, rows.Mul(scale).Mul(gains))
	b.Output("scale", scale)
	forward, err := b.Build()
	if err != nil {
		panic(err)
	}
	return &lower.Source{Inputs: []*graph.Node{x, gain}, Forward: forward}
}

// gate lowers silu(a)·b, where silu(a) = a·σ(a) and σ is the logistic function (Shazeer, 2020), or
// gelu(a)·b.
func gate(c lower.Call) ([]*graph.Node, lower.Back) {
	a, b, activation := c.Args[0], c.Args[1], c.Setting.(string)
	forward, backward := kernels.GatePrograms(activation, lower.SourceValue, a.Shape().Dimensions)
	y := lower.Lower(a.Graph(), forward, []*graph.Node{a, b})[lower.SourceValue]
	s := &lower.Source{Inputs: []*graph.Node{a, b}, Rounded: true, Forward: forward,
		Backward: backward}
	if lower.HasKernels(a.Graph()) {
		s.AttachTo(y)
	}
	return []*graph.Node{y}, func(d []lower.Adjoint, _ *graph.Node) []*graph.Node {
		if adjoints, ok := d[0].Join(s); ok {
			return adjoints
		}
		dy := d[0].Node()
		out := lower.Lower(a.Graph(), backward, []*graph.Node{a, b, dy})
		return []*graph.Node{out["da"], out["db"]}
	}
}
