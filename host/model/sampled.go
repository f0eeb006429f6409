package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/sdk/program"
)

// SampledLoss implements [Language].
func (m *transformer) SampledLoss(params []*graph.Node, batch, key *graph.Node,
	q ActivationQuantizer) *graph.Node {
	in, h := m.readHidden(params, batch, q)
	head := m.head(params)
	fixed := head
	fixed.w = graph.StopGradient(head.w)
	targets := drawTargets(m.chunks(h.Shape().Dim(0)), graph.StopGradient(h), fixed, key)
	return m.meanLoss(in, h, head, targets)
}

// drawTargets samples a target for each row of h [tokens, width] from softmax(logits); the result
// is [tokens]. It computes n chunks one after the other, each with its own key.
func drawTargets(n int, h *graph.Node, head outputHead, key *graph.Node) *graph.Node {
	tokens := h.Shape().Dim(0)
	number := graph.Iota(h.Graph(), shapes.Make(dtypes.Uint32, tokens, 1), 0)
	keys := graph.Add(graph.BroadcastToDims(graph.Reshape(key, 1, 2), tokens, 2),
		graph.Concatenate([]*graph.Node{graph.ZerosLike(number), number}, 1))
	state := []*graph.Node{graph.Zeros(h.Graph(), shapes.Make(dtypes.Int32, n, tokens/n, 1))}
	state = overChunks(n, h, head, []*graph.Node{keys}, state, func(c chunk) []*graph.Node {
		first := graph.Reshape(graph.Slice(c.perToken[0], graph.AxisRange(0, 1), graph.AxisRange()), 2)
		return []*graph.Node{c.put(c.state[0], drawColumns(c.head.logits(c.h), first))}
	})
	return clampIDs(graph.Reshape(state[0], tokens), head.w.Shape().Dim(0))
}

// drawColumns samples a column from each row of softmax(logits), [rows, 1], by the Gumbel-max
// trick: the largest sum of logit and Gumbel noise (Gumbel 1954). The noise has 23 bits: columns
// with probabilities below about 2⁻²³ are drawn too rarely.
func drawColumns(logits, key *graph.Node) *graph.Node {
	b := program.NewBuilder("loss/draw")
	rows, columns := logits.Shape().Dim(0), logits.Shape().Dim(1)
	x := b.Input("logits", program.FloatType(rows, columns))
	bits := b.RandomBits(b.Input("key", program.Type{DType: program.Uint, Shape: []int{2}}), rows,
		columns)
	u := bits.Shr(b.ConstUint(9)).Convert(program.Float).Shift(0.5).Scale(1.0 / (1 << 23))
	b.Output("column", x.Sub(u.Log().Neg().Log()).ArgMaxRow())
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return lower.Outputs(logits.Graph(), p, []*graph.Node{logits, key})[0]
}

// Labels implements [Language].
func (m *transformer) Labels(batches [][]int32, context int) float64 {
	sum, squares := 0.0, 0.0
	for _, b := range batches {
		if !m.Documents {
			n := float64(len(b) / (context + 1) * context)
			sum, squares = sum+n, squares+n
			continue
		}
		for _, r := range dataset.RowsOf(b, context) {
			for position := 1; position <= context; position++ {
				w := float64(r.Weight(position))
				sum, squares = sum+w, squares+w*w
			}
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares
}
