package engine

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Custom returns a node that equals value bit for bit and whose gradient is defined by vjp: given
// dy, the adjoint of the node, vjp returns the adjoint of each input, with the input's shape and
// element type, or nil for an input without a gradient. No gradient flows through value itself. If
// vjp is the identity, this is the straight-through estimator (Bengio et al., 2013) of a
// quantizer's value.
//
// vjp is called once per differentiation, and not at all if no gradient is asked for. It may
// compute the adjoints of all inputs: a device never computes results that are not needed.
func Custom(
	value *graph.Node, inputs []*graph.Node, vjp func(dy *graph.Node) []*graph.Node,
) *graph.Node {
	if len(inputs) == 0 {
		exceptions.Panicf("autodiff: a custom gradient needs at least one input")
	}
	// GoMLX lets a node have a custom gradient with respect to one input of the same shape. It also
	// lets a node be differentiated through an alternative of the same shape that is never executed.
	// The alternative built here only passes adjoints on: its last node passes dy to vjp, and
	// its first nodes, one per input, return the adjoints of the inputs.
	var adjoints []*graph.Node
	routes := make([]*graph.Node, len(inputs))
	for i, input := range inputs {
		first := graph.IdentityWithCustomGradient(input, func(x, _ *graph.Node) *graph.Node {
			adjoint := adjoints[i]
			if adjoint == nil {
				return graph.ZerosLike(x)
			}
			if !adjoint.Shape().Equal(x.Shape()) {
				exceptions.Panicf("autodiff: the custom gradient of input %d has shape %s, want %s",
					i, adjoint.Shape(), x.Shape())
			}
			return adjoint
		})
		scalar := graph.ConvertDType(graph.ReduceAllSum(first), value.DType())
		routes[i] = graph.BroadcastToShape(scalar, value.Shape())
	}
	total := routes[0]
	for _, route := range routes[1:] {
		total = graph.Add(total, route)
	}
	last := graph.IdentityWithCustomGradient(total, func(_, dy *graph.Node) *graph.Node {
		adjoints = vjp(dy)
		if len(adjoints) != len(inputs) {
			exceptions.Panicf("autodiff: the custom gradient returned %d adjoints for %d inputs",
				len(adjoints), len(inputs))
		}
		return dy
	})
	outputs, _ := graph.InternalFusedOpCallerMulti(
		func() []*graph.Node { return []*graph.Node{graph.Identity(value)} },
		func() []*graph.Node { return []*graph.Node{last} },
		true)
	// GoMLX passes an adjoint to the alternative only if the node's own inputs can have a gradient.
	Descend(outputs[0], inputs...)
	return outputs[0]
}
