// Package graphs lowers the calls of models' programs, and their adjoints, to operations and
// kernels of graphs, for accelerators.
package graphs

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/network"
)

// For returns the rules. Heads hold the logits of at most so many tokens at a time; 0 means as many
// as take 1 GiB.
func For(lossTokens int) lower.Calls {
	return lower.Calls{
		network.Linear:              {Forward: linear},
		network.OfCodes:             {Forward: ofCodes},
		network.RMSNorm:             {Forward: norm, AddsSum: true},
		network.Rope:                {Forward: rope, Rounds: true},
		network.GatedUnit:           {Forward: gate, Rounds: true},
		network.Attention:           {Forward: attend},
		network.PartAttention:       {Forward: attendToParts},
		network.CachedAttention:     {Forward: attendToCaches},
		network.CrossEntropy:        crossEntropy(lossTokens),
		network.SoftmaxDistillation: distillation(lossTokens),
		network.Draw:                {Forward: draw(lossTokens)},
		network.Scores:              {Forward: scores(lossTokens)},
	}
}

// linear lowers x·wᵀ.
func linear(c lower.Call) ([]*graph.Node, lower.Back) {
	x, w := c.Args[0], c.Args[1]
	product := engine.DotGeneral
	if c.MayRound {
		product = engine.DotGeneralRounded
	}
	return []*graph.Node{product(x, []int{1}, nil, w, []int{1}, nil)}, linearBack(x, w)
}

func linearBack(x, w *graph.Node) lower.Back {
	return func(d []lower.Adjoint, _ *graph.Node) []*graph.Node {
		dy := d[0].Node()
		return []*graph.Node{matMul(dy, w), transposedMatMul(dy, x)}
	}
}

// ofCodes lowers x·wᵀ with the codes of both. It multiplies the integers, which is exact, then
// scales by the rows of x, then by the rows of w.
func ofCodes(c lower.Call) ([]*graph.Node, lower.Back) {
	x, w, integers := c.Args[0], c.Args[1], c.Args[2:]
	back := linearBack(x, w)
	y := engine.DotIntegers(integers[0], integers[2], integers[1], integers[3], c.MayRound)
	return []*graph.Node{y}, func(d []lower.Adjoint, sum *graph.Node) []*graph.Node {
		return append(back(d, sum), make([]*graph.Node, len(integers))...)
	}
}

// matMul returns a·b. As in all products here, operands are rounded to the device's precision.
func matMul(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{1}, nil, b, []int{0}, nil)
}

func matMulTransposed(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{1}, nil, b, []int{1}, nil)
}

func transposedMatMul(a, b *graph.Node) *graph.Node {
	return engine.DotGeneral(a, []int{0}, nil, b, []int{0}, nil)
}

// rope lowers the division of rows into heads and their rotary position embedding.
func rope(c lower.Call) ([]*graph.Node, lower.Back) {
	h, x, cos, sin := c.Setting.(network.Heads), c.Args[0], c.Args[1], c.Args[2]
	var parts []*graph.Node
	column := 0
	for i, heads := range h.Parts {
		width := heads * h.Size
		part := graph.SliceAxis(x, 1, graph.AxisRange(column, column+width))
		part = graph.Reshape(part, h.Batch, h.Context, heads, h.Size)
		if column += width; i < h.Rotated {
			part = rotate(h, part, cos, sin, 1)
		}
		parts = append(parts, part)
	}
	return parts, func(d []lower.Adjoint, _ *graph.Node) []*graph.Node {
		var joined []*graph.Node
		for i, part := range parts {
			dPart := d[i].Node()
			switch {
			case dPart == nil:
				dPart = graph.ZerosLike(part)
			case i < h.Rotated:
				dPart = rotate(h, dPart, cos, sin, -1)
			}
			joined = append(joined, graph.Reshape(dPart, x.Shape().Dim(0), h.Parts[i]*h.Size))
		}
		dx := joined[0]
		if len(joined) > 1 {
			dx = graph.Concatenate(joined, 1)
			// Without this, XLA fuses the concatenation into one of the two products that read it.
			dx = engine.Rounded(dx)
		}
		return []*graph.Node{dx, nil, nil}
	}
}

// rotate rotates the pairs of features of x [batch, context, heads, size] by the angles of their
// positions, forward for direction 1 and back for −1. Both features of a pair are computed at once,
// each from itself and from the other one. If they were computed separately, compilers would write
// them to memory to join them.
func rotate(h network.Heads, x, cos, sin *graph.Node, direction float32) *graph.Node {
	dims, pairs := x.Shape().Dimensions, h.Size/2
	split, table, signs, axis := []int{2, pairs}, []int{1, pairs}, []int{2, 1}, 3
	if h.Adjacent {
		split, table, signs, axis = []int{pairs, 2}, []int{pairs, 1}, []int{1, 2}, 4
	}
	features := graph.Reshape(x, append(append([]int{}, dims[:3]...), split...)...)
	of := func(t *graph.Node) *graph.Node {
		return graph.Reshape(t, append([]int{1, dims[1], 1}, table...)...)
	}
	sign := graph.Constant(x.Graph(), []float32{-direction, direction}, append([]int{1, 1, 1},
		signs...)...)
	y := graph.Mul(features, of(cos))
	z := graph.Mul(graph.Reverse(features, axis), graph.Mul(of(sin), sign))
	return graph.Reshape(graph.Add(y, z), dims...)
}
