package step

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
)

// accumulated computes the losses of all micro-batches, [accumulate], and the summed
// gradients of the used weights and of the activations' trained parameters, on one
// replica.
func (k *Kernels) accumulated(g *graph.Graph, params, quantized []*graph.Node, tokens *graph.Node) (losses *graph.Node, sums []*graph.Node) {
	p := &k.plan
	in := used(k, params, quantized)
	if p.FullPrecision {
		in = params
	}
	key := gradientKey{full: p.FullPrecision, local: true}
	if p.Accumulate == 1 {
		_, build := p.gradientGraph(key)
		out := build(g, append(in, graph.Reshape(tokens, p.batchDims()...)))
		return graph.Reshape(out[0], 1), out[1:]
	}
	key.sum = true
	_, build := p.gradientGraph(key)
	// −0 is what can be added to any number without changing it.
	nothing := graph.Const(g, float32(math.Copysign(0, -1)))
	state := []*graph.Node{graph.BroadcastToDims(nothing, p.Accumulate)}
	for _, w := range in {
		state = append(state, graph.BroadcastToDims(nothing, w.Shape().Dimensions...))
	}
	state = engine.Loop(g, p.Accumulate, append(in, tokens), state, func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		in, tokens := fixed[:len(in):len(in)], fixed[len(in)]
		batch := graph.Reshape(graph.Gather(tokens, graph.Reshape(i, 1)), p.batchDims()...)
		out := build(g, append(append(in, batch), state[1:]...))
		out[0] = graph.DynamicUpdateSlice(state[0], graph.Reshape(out[0], 1), []*graph.Node{i})
		return out
	})
	return state[0], state[1:]
}
