package engine

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Checkpoint returns f(inputs), with the gradient of f computed from the inputs alone: the backward
// pass calls f a second time and differentiates the result, so that the intermediate values of the
// first call need not be kept (Chen et al., 2016). Values and gradients equal those of f bit for
// bit. f must build the same graph both times. It may also read nodes that are not among its
// inputs; gradients flow to these, too.
//
// The second call gets copies of the inputs that become available only with the adjoint of the
// result. Otherwise a device might merge the two calls or compute the second early, and no memory
// would be saved.
func Checkpoint(f func(inputs []*graph.Node) *graph.Node, inputs ...*graph.Node) *graph.Node {
	if len(inputs) == 0 {
		exceptions.Panicf("autodiff: a checkpoint needs at least one input")
	}
	before := inputs[0].Graph().LastNode().Id()
	inputs, gather := ungather(inputs)
	whole := f
	f = func(in []*graph.Node) *graph.Node { return whole(gather(in)) }
	value := f(inputs)
	all := slices.Concat(inputs, capturedNodes(value, before, inputs))
	return Custom(value, all, func(dy *graph.Node) []*graph.Node {
		again := delayInputs(dy, inputs)
		return VJP(f(again), dy, slices.Concat(again, all[len(inputs):])...)
	})
}

// VJP returns the adjoints of the inputs, given the adjoint dy of y, which is computed from them.
// The adjoint of an input that y does not depend on is zero.
func VJP(y, dy *graph.Node, inputs ...*graph.Node) []*graph.Node {
	if !y.Shape().Equal(dy.Shape()) {
		exceptions.Panicf("autodiff: adjoint of shape %s for a value of shape %s", dy.Shape(), y.Shape())
	}
	// GoMLX differentiates only scalars. The adjoint of this sum is replaced by dy, and the sum is
	// never executed.
	seeded := graph.IdentityWithCustomGradient(y, func(_, _ *graph.Node) *graph.Node { return dy })
	return graph.Gradient(graph.ReduceAllSum(seeded), inputs...)
}

// capturedNodes lists the nodes that f reads besides its inputs: floating-point nodes with an ID of
// at most last that are operands of later nodes on a path to value. It omits constants and nodes
// that stop gradients, because GoMLX would differentiate everything from which they were computed.
func capturedNodes(value *graph.Node, last graph.NodeId, inputs []*graph.Node) []*graph.Node {
	visited := make(map[*graph.Node]bool)
	for _, input := range inputs {
		visited[input] = true
	}
	var found []*graph.Node
	var visit func(*graph.Node)
	visit = func(n *graph.Node) {
		if visited[n] {
			return
		}
		visited[n] = true
		if n.Id() <= last {
			float := n.NumOutputs() == 1 && n.DType().IsFloat()
			if float && n.Type() != graph.NodeTypeConstant && !n.StopGradient() {
				found = append(found, n)
			}
			return
		}
		for _, input := range n.Inputs() {
			visit(input)
		}
	}
	visit(value)
	return found
}

// delayInputs returns bitwise copies of the inputs that become available only after dy and that
// stop gradients.
func delayInputs(dy *graph.Node, inputs []*graph.Node) []*graph.Node {
	again := make([]*graph.Node, len(inputs))
	if !OnCPU(dy.Graph()) {
		copy(again, graph.OptimizationBarriers(append(slices.Clone(inputs), dy)...))
	} else {
		// On the CPU, OptimizationBarriers does not make its operands wait for each other.
		// SchedulingBarrier does, but it copies operands that are also read elsewhere. Graph
		// parameters are available from the start and need not wait.
		for i, input := range inputs {
			again[i] = input
			if input.Type() != graph.NodeTypeParameter {
				again[i] = graph.SchedulingBarrier(input, dy)
			}
		}
	}
	// GoMLX differentiates through everything that a node with a custom gradient descends from.
	// Without StopGradient, it would differentiate a chain of checkpoints anew for each of them.
	for i, node := range again {
		if node.Type() != graph.NodeTypeParameter {
			again[i] = graph.Identity(graph.StopGradient(node))
		}
		if node != inputs[i] {
			CopyNotes(again[i], inputs[i])
		}
	}
	return again
}
