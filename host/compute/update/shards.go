package update

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Divided reports of which tensors, by name and dimensions, each replica keeps its rows only. The
// first axis of such a tensor divides into the number of replicas. Nil: of none.
type Divided func(tensor string, dims []int) bool

// Specs returns the inputs as the device has them, given those of whole tensors: what is divided
// becomes the part of one replica.
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

// divides reports whether an input is divided that is not sharded anyway, as tokens are.
func (d Divided) divides(spec engine.Spec) bool {
	return d != nil && !spec.Sharded && d(spec.Name, spec.Shape.Dimensions)
}

// Input returns the node of a whole tensor, given that of an input of [Divided.Specs].
func (d Divided) Input(spec engine.Spec, x *graph.Node) *graph.Node {
	if d.divides(spec) {
		return engine.Gather(x)
	}
	return x
}

// Output returns the node to return for a whole tensor.
func (d Divided) Output(tensor string, x *graph.Node) *graph.Node {
	if d != nil && d(tensor, x.Shape().Dimensions) {
		return engine.Sharded(engine.Rows(x))
	}
	return x
}
