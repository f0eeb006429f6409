package update

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Divided says of which tensors, by name and dimensions, each replica of a device keeps its rows only; nil for none. The first
// axis of such a tensor divides into the number of replicas.
type Divided func(tensor string, dims []int) bool

// Of reports whether a tensor is divided.
func (d Divided) Of(tensor string, dims []int) bool { return d != nil && d(tensor, dims) }

// Specs are inputs, of whole tensors, as the device has them: what is divided is that of one replica.
func (d Divided) Specs(dev *engine.Device, whole []engine.Spec) []engine.Spec {
	list := slices.Clone(whole)
	for i, spec := range list {
		if !spec.Sharded && d.Of(spec.Name, spec.Shape.Dimensions) {
			list[i].Sharded, list[i].Shape = true, spec.Shape.Clone()
			list[i].Shape.Dimensions[0] /= dev.Count()
		}
	}
	return list
}

// Input is the node of a whole tensor, made from that of an input of [Divided.Specs].
func (d Divided) Input(spec engine.Spec, x *graph.Node) *graph.Node {
	if !spec.Sharded && d.Of(spec.Name, spec.Shape.Dimensions) {
		return engine.Gather(x)
	}
	return x
}

// Output is the node to return for a tensor.
func (d Divided) Output(tensor string, x *graph.Node) *graph.Node {
	if d.Of(tensor, x.Shape().Dimensions) {
		return engine.Sharded(engine.Rows(x))
	}
	return x
}
