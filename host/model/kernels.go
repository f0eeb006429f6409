package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/attention"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// sums are the calls that add to their result in the same pass over memory.
var sums = []string{network.Linear, network.RMSNorm}

// callKernels are the kernels of the CPU for the calls of models' programs.
var callKernels = map[string]lower.CallKernel{
	network.Linear:       linearKernel,
	network.RMSNorm:      normKernel,
	network.Rope:         ropeKernel,
	network.Attention:    attentionKernel,
	network.GatedUnit:    nil,
	network.CrossEntropy: lossKernel,
}

func linearKernel(_ *program.Call, in []*graph.Node, sum *graph.Node) (
	[]*graph.Node, lower.CallBack) {
	x, w, y := in[0], in[1], (*graph.Node)(nil)
	if sum != nil {
		y = engine.AddDotGeneral(sum, x, []int{1}, nil, w, []int{1}, nil)
	} else {
		y = matMulTransposedRounded(x, w)
	}
	return []*graph.Node{y}, func(d []*graph.Node, sum *graph.Node) []*graph.Node {
		dx, dw := addLinearGradients(sum, d[0], x, w)
		return []*graph.Node{dx, dw}
	}
}

func normKernel(c *program.Call, in []*graph.Node, sum *graph.Node) (
	[]*graph.Node, lower.CallBack) {
	x, gain := in[0], in[1]
	rows := normSource(x, graph.Reshape(gain, -1), c.Setting.(float64), nil).Forward
	operands := []string{lower.SourceValue}
	if sum != nil {
		operands = nil
	}
	out := lower.Rows(x.Graph(), rows, in, operands...)
	y, scale := out[lower.SourceValue], out["scale"]
	if sum != nil {
		y = graph.Add(sum, y)
	}
	return []*graph.Node{y}, func(d []*graph.Node, sum *graph.Node) []*graph.Node {
		dx, dGain := rowAdjoints(x, gain, scale, d[0], sum)
		return []*graph.Node{dx, graph.InsertAxes(dGain, 0)}
	}
}

func ropeKernel(c *program.Call, in []*graph.Node, _ *graph.Node) ([]*graph.Node, lower.CallBack) {
	s, tables := c.Setting.(network.Heads), rotationTables{in[1], in[2]}
	h := attention.Heads{Batch: s.Batch, Context: s.Context, Size: s.Size, Pairs: s.Adjacent}
	for i, heads := range s.Parts {
		h.Parts = append(h.Parts, attention.Part{Heads: heads, Rotated: i < s.Rotated})
	}
	return splitNatively(h, in[0], tables), func(d []*graph.Node, _ *graph.Node) []*graph.Node {
		return []*graph.Node{joinNatively(h, d, tables, engine.OperandType(in[0].Graph())), nil, nil}
	}
}

func attentionKernel(c *program.Call, in []*graph.Node, _ *graph.Node) (
	[]*graph.Node, lower.CallBack) {
	s, segments := c.Setting.(network.Attending), (*graph.Node)(nil)
	if len(in) > 3 {
		segments = in[3]
	}
	core := nativeCore(scores{s.Scale, s.Cap}, segments, s.Window)
	mixed, back := core(in[0], in[1], in[2])
	return []*graph.Node{mixed}, func(d []*graph.Node, _ *graph.Node) []*graph.Node {
		dq, dk, dv := back(d[0])
		return []*graph.Node{dq, dk, dv, nil}
	}
}

func lossKernel(c *program.Call, in []*graph.Node, _ *graph.Node) ([]*graph.Node, lower.CallBack) {
	h, head, targets := in[0], outputHead{in[1], c.Setting.(float64)}, graph.InsertAxes(in[2], -1)
	logits := head.logits(h)
	losses, _ := maskedLosses(logits, targets)
	return []*graph.Node{graph.Squeeze(losses, -1)},
		func(d []*graph.Node, _ *graph.Node) []*graph.Node {
			_, dLogits := nativeLosses(logits, targets, graph.InsertAxes(d[0], -1))
			dh, dw := head.adjoints(h, logits, dLogits)
			return []*graph.Node{dh, dw, nil}
		}
}
