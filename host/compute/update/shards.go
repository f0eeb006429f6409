package update

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Divided reports whether a tensor is sharded: each replica keeps only its rows. The first axis of
// such a tensor must be divisible by the number of replicas. Nil shards none.
type Divided func(tensor string, dims []int) bool

// Specs returns the inputs as they are on the device, given those of whole tensors: a sharded one
// gets the shape of one replica's part.
func (d Divided) Specs(dev *engine.Device, whole []engine.Spec) []engine.Spec {
	list := slices.Clone(whole)
	for i, spec := range list {
		if d.divides(spec) {
			list[i].Sharded, list[i].Shape = true, spec.Shape.Clone()
			list[i].Shape.Dimensions[0] /= dev.Count()
		}
	}
	return list
}

// divides reports whether an input is to be sharded that is not already sharded, as tokens are.
func (d Divided) divides(spec engine.Spec) bool {
	return d != nil && !spec.Sharded && d(spec.Name, spec.Shape.Dimensions)
}

// Input returns the node of a whole tensor, given the node of an input of [Divided.Specs].
func (d Divided) Input(spec engine.Spec, x *graph.Node) *graph.Node {
	if d.divides(spec) {
		return engine.Gather(x)
	}
	return x
}

// Output returns the graph output for a whole tensor.
func (d Divided) Output(tensor string, x *graph.Node) *graph.Node {
	if d != nil && d(tensor, x.Shape().Dimensions) {
		return engine.Sharded(engine.Rows(x))
	}
	return x
}
