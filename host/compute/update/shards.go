package update

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Which says of which tensors, by name and dimensions, something is so; nil of none.
type Which func(tensor string, dims []int) bool

// Of reports whether it is so of a tensor.
func (w Which) Of(tensor string, dims []int) bool { return w != nil && w(tensor, dims) }

// Places says where a device keeps tensors.
type Places struct {
	// Divided are those of which each replica keeps its rows only. The first axis of such a tensor divides into the number of replicas.
	Divided Which
	// Offloaded are those that are kept in the machine's memory.
	Offloaded Which
}

// Specs are inputs, of whole tensors, as the device has them: what is divided is that of one replica.
func (p Places) Specs(dev *engine.Device, whole []engine.Spec) []engine.Spec {
	list := slices.Clone(whole)
	for i, spec := range list {
		list[i].Host = p.Offloaded.Of(spec.Name, spec.Shape.Dimensions)
		if p.divides(spec) {
			list[i].Sharded, list[i].Shape = true, spec.Shape.Clone()
			list[i].Shape.Dimensions[0] /= dev.Count()
		}
	}
	return list
}

// divides reports whether an input is divided that is not sharded anyway, as tokens are.
func (p Places) divides(spec engine.Spec) bool {
	return !spec.Sharded && p.Divided.Of(spec.Name, spec.Shape.Dimensions)
}

// Input is the node of a whole tensor, made from that of an input of [Places.Specs]. One in the machine's memory is to be fetched first
// ([engine.Fetch]).
func (p Places) Input(spec engine.Spec, x *graph.Node) *graph.Node {
	switch divided := p.divides(spec); {
	case p.Offloaded.Of(spec.Name, spec.Shape.Dimensions):
		return engine.FromHost(x, divided)
	case divided:
		return engine.Gather(x)
	}
	return x
}

// Output is the node to return for a tensor.
func (p Places) Output(tensor string, x *graph.Node) *graph.Node {
	dims := x.Shape().Dimensions // of the whole
	if p.Divided.Of(tensor, dims) {
		x = engine.Sharded(engine.Rows(x))
	}
	if p.Offloaded.Of(tensor, dims) {
		x = engine.ToHost(x)
	}
	return x
}

// Put puts a tensor that was uploaded where it is kept.
func (p Places) Put(tensor string, b *engine.Buffer) error {
	if p.Offloaded.Of(tensor, b.Shape().Dimensions) {
		return engine.Offload(b)
	}
	return nil
}
